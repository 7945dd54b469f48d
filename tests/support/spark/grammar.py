"""The kinds of statements and parts that the grammars of Spark and Delta have, by their parsers."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

SPARK = "org.apache.spark.sql.catalyst.parser.SqlBaseParser"
DELTA = "io.delta.sql.parser.DeltaSqlBaseParser"
_CONTEXT = "Context"


def kinds(spark: SparkSession, grammar: str, *rules: str) -> set[str]:
    """The alternatives of rules of a grammar, each by its label."""
    wanted = {rule + _CONTEXT for rule in rules}
    return {
        _label(each)
        for each in _class(spark, grammar).getDeclaredClasses()
        if each.getSuperclass().getSimpleName() in wanted
    }


def parts(spark: SparkSession, grammar: str, rule: str) -> set[str]:
    """The rules that an alternative of a rule may consist of."""
    found = _class(spark, f"{grammar}${rule}{_CONTEXT}").getDeclaredMethods()
    returned = (each.getReturnType() for each in found)
    return {_label(each) for each in returned if each.getSimpleName().endswith(_CONTEXT)}


def labels(spark: SparkSession, text: str) -> set[str]:
    """All rules and alternatives that a statement uses, by Delta's grammar and by Spark's."""
    return _labels(_delta_tree(spark, text)) | _labels(_spark_tree(spark, text))


def _class(spark: SparkSession, name: str) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.util.Utils.classForName(name, False, False)


def _label(context: Any) -> str:
    name: str = context.getSimpleName()
    return name.removesuffix(_CONTEXT)


def _labels(tree: Any) -> set[str]:
    """None of a text that is not in the grammar."""
    if tree is None:
        return set()
    trees: Any = tree[1].org.antlr.v4.runtime.tree.Trees
    classes = {each.getClass() for each in trees.getDescendants(tree[0])}
    return {_label(each) for found in classes for each in (found, found.getSuperclass())}


def _spark_tree(spark: SparkSession, text: str) -> Any:
    jvm: Any = spark._jvm
    parser = jvm.org.apache.spark.sql.catalyst.parser
    lexer = parser.SqlBaseLexer(_characters(spark, text))
    return _parsed(jvm, lexer, parser.SqlBaseParser, "compoundOrSingleStatement")


def _delta_tree(spark: SparkSession, text: str) -> Any:
    jvm: Any = spark._jvm
    parser = jvm.io.delta.sql.parser
    lexer = parser.DeltaSqlBaseLexer(_characters(spark, text))
    return _parsed(jvm, lexer, parser.DeltaSqlBaseParser, "singleStatement")


def _characters(spark: SparkSession, text: str) -> Any:
    jvm: Any = spark._jvm
    stream = jvm.org.antlr.v4.runtime.CharStreams.fromString(text)
    return jvm.org.apache.spark.sql.catalyst.parser.UpperCaseCharStream(stream)


def _parsed(jvm: Any, lexer: Any, parser_class: Any, rule: str) -> Any:
    lexer.removeErrorListeners()
    parser = parser_class(jvm.org.antlr.v4.runtime.CommonTokenStream(lexer))
    parser.removeErrorListeners()
    tree = getattr(parser, rule)()
    return None if parser.getNumberOfSyntaxErrors() else (tree, jvm)
