"""Stage 0, query expansion without a model: synonyms, and for a term that the index lacks its other forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from perdure.plugins.search.terms import asked

_ALIKE = """
address live home reside | animal pet cat dog | birthday born birth | boss manager lead | buy purchase order
call phone telephone mobile | car vehicle | choose pick decide select | city town place
cloud hosting provider | code source repository repo | color colour | company employer work job
config configuration setting option | cost price pay budget | customer client
database db postgres mysql sqlite | deadline due date | delete remove drop erase | deploy release rollout ship
directory folder path | doctor dentist physician | drink tea coffee beverage | drug medicine medication pill
eat food diet meal | endpoint url address | error failure bug crash fault | fast quick speed
favourite favorite prefer like | fix repair solve | flat apartment home | function method def
holiday vacation trip travel | host server machine | key token secret credential | language locale
limit maximum max cap | login sign auth password | mail email | meet meeting appointment call | name call
partner wife husband spouse | queue broker kafka rabbitmq | run execute start launch | schedule time hour
school class teacher | sibling brother sister | standup meeting | stop end halt | store save keep
team group | test check verify | timeout wait deadline | train flight journey | wifi wireless network
电话 手机 号码 | 生日 出生 | 地址 住在 家里 搬到 | 公司 工作 上班 | 部署 发布 上线 | 服务器 主机
密码 口令 | 会议 开会 例会 | 喜欢 最爱 偏好 | 宠物 猫 狗 | 配置 设置 | 价格 费用 预算 | 车 汽车
医生 牙医 | 过敏 不能吃 | 截止 期限
電話 携帯 番号 | 誕生日 生まれ | 住所 住ん 引っ越 | 会社 勤め 仕事 職場 | デプロイ リリース | サーバ ホスト
会議 ミーティング 打ち合わせ | 好き 好物 お気に入り | ペット 猫 犬 | 設定 コンフィグ | 予算 費用 価格
医者 歯医者 | 締め切り 期限 締切
"""
PREFIX = 3
"""Letters that two words must share to be taken for forms of one, or one misspelt."""
FORMS = 4
"""How many forms of one term are looked for."""


def groups(lines: Iterable[str] = _ALIKE.strip().splitlines()) -> dict[str, frozenset[str]]:
    """Term → terms of like meaning. `lines`: groups divided by `|`, words by spaces."""
    alike: dict[str, frozenset[str]] = {}
    for group in (part for line in lines for part in line.split("|")):
        members = frozenset(term for word in group.split() for term in asked(word))
        for term in members:
            alike[term] = alike.get(term, frozenset()) | members
    return alike


def expanded(
    terms: Sequence[str], alike: Mapping[str, frozenset[str]], forms: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Terms to look for besides `terms`, in a fixed order, each with the one that it stands for.

    `forms`: term → terms of the index like it.
    """
    more: dict[str, str] = {}
    for term in terms:
        for other in (*forms.get(term, ()), *sorted(alike.get(term, ()))):
            if other not in terms:
                more.setdefault(other, term)
    return more


def has_forms(term: str) -> bool:
    """Whether a term is a word that may stand in the index in another form, or spelt rightly."""
    return len(term) > PREFIX and term.isascii() and term.isalpha()


def forms(term: str, known: Iterable[str]) -> list[str]:
    """Of the terms `known`, those that are forms of `term` (two thirds of the shorter one are the same
    beginning), or near in spelling; the nearest first.
    """
    near = [(_edits(term, other), other) for other in known if abs(len(other) - len(term)) <= 8]
    most = 1 if len(term) < 6 else 2
    kept = [(edits, other) for edits, other in near if edits <= most or _begins(term, other)]
    return [other for _, other in sorted(kept)][:FORMS]


def _begins(one: str, other: str) -> bool:
    shared = next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    return 3 * shared >= 2 * min(len(one), len(other)) and shared > PREFIX


def _edits(one: str, other: str) -> int:
    """Letters put in, left out, changed, or swapped with their neighbour (optimal string alignment)."""
    before, last = list[int](), list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            best = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                best = min(best, before[j - 2] + 1)
            row.append(best)
        before, last = last, row
    return last[-1]
