"""The words that generated texts are made of. Never changed: generated texts are compared by hash."""

from __future__ import annotations

WORDS = (
    "the", "a", "of", "to", "and", "request", "result", "worker", "batch", "retry", "queue", "window",
    "cache", "entry", "session", "value", "table", "index", "reads", "writes", "waits", "starts", "ends",
    "holds", "drops", "keeps", "returns", "slow", "cold", "warm", "empty", "ready", "stale", "local",
    "remote", "first", "last", "next", "every", "without", "between", "after", "before", "until", "because",
    "order", "token", "limit", "budget", "schema", "key", "path", "file", "folder", "change", "check",
    "build", "plan", "report", "message", "answer", "user", "tool", "model", "step", "turn", "review",
)  # fmt: skip
SERVICES = ("gateway", "scheduler", "store", "worker", "indexer", "mailer", "auth", "billing", "search")
LEVELS = ("DEBUG", "INFO", "INFO", "INFO", "WARN", "ERROR")
VERBS = ("load", "store", "merge", "split", "render", "parse", "check", "apply", "resolve", "collect")
NAMES = (
    "order", "invoice", "account", "report", "ticket", "window", "batch", "cursor", "digest", "label",
    "policy", "quota", "record", "shard", "token", "usage",
)  # fmt: skip
CJK_WORDS = (
    "我们", "今天", "明天", "昨天", "项目", "计划", "会议", "报告", "数据", "系统",
    "用户", "需求", "问题", "方案", "结果", "测试", "部署", "上线", "窗口",
    "上下文", "会话", "消息", "模型", "工具", "缓存", "压缩", "摘要", "记录",
    "文件", "时间", "地址", "预算", "进度", "团队", "客户", "产品", "设计", "代码",
    "接口", "版本", "日志", "已经", "需要", "可以", "应该", "正在", "完成", "开始",
    "检查", "确认", "更新", "发送", "整理", "讨论", "决定", "比较", "重要", "简单",
    "复杂", "稳定", "以及", "但是", "因为", "所以", "如果", "然后",
)  # fmt: skip
CJK_ENDS = ("。", "。", "。", "，", "；", "？", "！")
