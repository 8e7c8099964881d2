# What a cluster needs in AWS before the operator is installed: the role of its nodes, the policy of its controller, and the queue of interruptions.
# The same as cloudformation.yaml.
#
#   terraform apply -var cluster_name=my-cluster

terraform {
  required_version = ">= 1.3"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "cluster_name" {
  description = "Name of the EKS cluster; CLUSTER_NAME of the operator"
  type        = string

  validation {
    condition     = can(regex("^[0-9A-Za-z][A-Za-z0-9_-]{0,45}$", var.cluster_name))
    error_message = "cluster_name must begin with a letter or digit, go on with letters, digits, _ and -, and have at most 46 characters: names of roles have at most 64, which leaves 46 after KarpenterNodeRole-."
  }
}

variable "tags" {
  description = "Tags of everything that is made here"
  type        = map(string)
  default     = {}
}

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  rules = {
    scheduled-change                  = { source = "aws.health", detail_type = "AWS Health Event" }
    spot-interruption                 = { source = "aws.ec2", detail_type = "EC2 Spot Instance Interruption Warning" }
    rebalance                         = { source = "aws.ec2", detail_type = "EC2 Instance Rebalance Recommendation" }
    instance-state-change             = { source = "aws.ec2", detail_type = "EC2 Instance State-change Notification" }
    capacity-reservation-interruption = { source = "aws.ec2", detail_type = "EC2 Capacity Reservation Instance Interruption Warning" }
  }
  node_policies = [
    "AmazonEKS_CNI_Policy",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
  ]
}

resource "aws_iam_role" "node" {
  name = "KarpenterNodeRole-${var.cluster_name}"
  tags = var.tags
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "ec2.${data.aws_partition.current.dns_suffix}" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each   = toset(local.node_policies)
  role       = aws_iam_role.node.name
  policy_arn = "arn:${data.aws_partition.current.partition}:iam::aws:policy/${each.value}"
}

resource "aws_iam_policy" "controller" {
  name = "KarpenterControllerPolicy-${var.cluster_name}"
  tags = var.tags
  policy = templatefile("${path.module}/controller-policy.json", {
    Partition   = data.aws_partition.current.partition
    Region      = data.aws_region.current.name
    Account     = data.aws_caller_identity.current.account_id
    ClusterName = var.cluster_name
    NodeRole    = aws_iam_role.node.name
  })
}

# Messages are worth nothing after five minutes: by then the instance is gone.
resource "aws_sqs_queue" "interruption" {
  name                      = var.cluster_name
  message_retention_seconds = 300
  sqs_managed_sse_enabled   = true
  tags                      = var.tags
}

resource "aws_sqs_queue_policy" "interruption" {
  queue_url = aws_sqs_queue.interruption.url
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "EventsMaySend"
        Effect    = "Allow"
        Principal = { Service = ["events.amazonaws.com", "sqs.amazonaws.com"] }
        Action    = "sqs:SendMessage"
        Resource  = aws_sqs_queue.interruption.arn
      },
      {
        Sid       = "OnlyEncrypted"
        Effect    = "Deny"
        Principal = "*"
        Action    = "sqs:*"
        Resource  = aws_sqs_queue.interruption.arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ]
  })
}

# Without names, as in cloudformation.yaml: they may have 64 characters, too few for the longest names of clusters.
resource "aws_cloudwatch_event_rule" "interruption" {
  for_each      = local.rules
  description   = "Interruptions of nodes of ${var.cluster_name}: ${each.key}"
  tags          = var.tags
  event_pattern = jsonencode({ source = [each.value.source], "detail-type" = [each.value.detail_type] })
}

resource "aws_cloudwatch_event_target" "interruption" {
  for_each = local.rules
  rule     = aws_cloudwatch_event_rule.interruption[each.key].name
  arn      = aws_sqs_queue.interruption.arn
}

output "node_role" {
  description = "spec.role of EC2NodeClasses"
  value       = aws_iam_role.node.name
}

output "controller_policy_arn" {
  description = "Policy for the role of the operator's service account (IRSA or Pod Identity)"
  value       = aws_iam_policy.controller.arn
}

output "interruption_queue" {
  description = "INTERRUPTION_QUEUE of the operator"
  value       = aws_sqs_queue.interruption.name
}
