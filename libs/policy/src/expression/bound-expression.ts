import type { Expr, Expr_Call, Expr_Comprehension } from '@bufbuild/cel-spec/cel/expr/syntax_pb.js';
import { EXPRESSION_LIMITS } from './budget.js';
import { DYNAMIC, typeOfField, VALUE, type ValueType } from './value-type.js';

/** Types of the variables that an expression may use, by name. */
export type Variables = ReadonlyMap<string, ValueType>;

/** Functions that {@link boundExpression} inserts and `meteredFunctions` implements. */
export const METER = {
  /** Spends steps, and returns true. */
  charge: '@charge',
  /** Returns a single value as it is, refuses lists, maps and messages. */
  scalar: '@scalar',
  /** Returns a text, list or map of a bounded size. */
  sized: '@sized',
  /** Returns a text that is short enough to be parsed. */
  short: '@short',
} as const;

const LOGIC: readonly string[] = ['_&&_', '_||_', '!_', '_?_:_', '@not_strictly_false'];
const COMPARISONS: readonly string[] = ['_==_', '_!=_', '_<_', '_<=_', '_>_', '_>=_'];
const ARITHMETIC: readonly string[] = ['_+_', '_-_', '_*_', '_/_', '_%_', '-_'];
const TEXT_METHODS: readonly string[] = ['contains', 'startsWith', 'endsWith', 'matches'];
const CONVERSIONS: readonly string[] = ['int', 'double', 'string', 'duration'];
const ALLOWED = `has, all, exists, exists_one, map, filter, size, ${[...TEXT_METHODS, ...CONVERSIONS].join(', ')}`;

/** Type of an expression and number of its nodes, with those of its loops. */
interface Visited {
  readonly type: ValueType;
  readonly nodes: number;
}

interface Position {
  readonly variables: Variables;
  /** Levels above the expression in the syntax tree. */
  readonly depth: number;
  /** Loops around the expression. */
  readonly loops: number;
}

/**
 * Checks the syntax tree of an expression, and inserts calls that spend the budget of the evaluation,
 * in place. Every turn of a loop spends its nodes, and operations whose cost depends on the data are
 * bounded, so that the cost of an evaluation is bounded.
 * @param onPattern - Called with every regular expression; throws when it cannot be used.
 * @throws An error with a message for people.
 */
export function boundExpression(
  root: Expr,
  variables: Variables,
  onPattern: (pattern: string) => void,
): void {
  new ExpressionBounds(onPattern).visit(root, { variables, depth: 0, loops: 0 });
}

/** Checks and changes the syntax tree of one expression, from the root to the leaves. */
class ExpressionBounds {
  constructor(private readonly onPattern: (pattern: string) => void) {}

  visit(expr: Expr, at: Position): Visited {
    if (at.depth > EXPRESSION_LIMITS.depth)
      throw new Error(`the expression is more than ${EXPRESSION_LIMITS.depth} levels deep`);
    const inside = { ...at, depth: at.depth + 1 };
    const { exprKind } = expr;
    switch (exprKind.case) {
      case 'identExpr':
        return { type: typeOfVariable(exprKind.value.name, at.variables), nodes: 1 };
      case 'constExpr':
        return { type: typeOfConstant(exprKind.value.constantKind.case), nodes: 1 };
      case 'selectExpr': {
        const operand = this.visit(requireExpr(exprKind.value.operand), inside);
        const type = typeOfSelected(operand.type, exprKind.value.field);
        return { type: exprKind.value.testOnly ? VALUE : type, nodes: operand.nodes + 1 };
      }
      case 'listExpr': {
        const nodes = this.visitAll(exprKind.value.elements, inside).nodes + 1;
        return { type: { kind: 'list', item: DYNAMIC }, nodes };
      }
      case 'structExpr': {
        if (exprKind.value.messageName !== '')
          throw new Error(`${exprKind.value.messageName}{…}: messages cannot be created`);
        const parts = exprKind.value.entries.flatMap(({ keyKind, value }) => [
          ...(keyKind.case === 'mapKey' ? [keyKind.value] : []),
          ...(value === undefined ? [] : [value]),
        ]);
        const nodes = this.visitAll(parts, inside).nodes + 1;
        return { type: { kind: 'map', value: DYNAMIC }, nodes };
      }
      case 'callExpr':
        return this.visitCall(exprKind.value, inside);
      case 'comprehensionExpr':
        return this.visitLoop(exprKind.value, inside);
      default:
        throw new Error('the expression has an unknown form');
    }
  }

  private visitAll(exprs: readonly Expr[], at: Position) {
    const visited = exprs.map((expr) => this.visit(expr, at));
    return {
      types: visited.map(({ type }) => type),
      nodes: visited.reduce((sum, { nodes }) => sum + nodes, 0),
    };
  }

  private visitCall(call: Expr_Call, at: Position): Visited {
    const name = call.function;
    const { types, nodes: argNodes } = this.visitAll(call.args, at);
    const target = call.target === undefined ? undefined : this.visit(call.target, at);
    const nodes = argNodes + (target?.nodes ?? 0) + 1;
    const [first, second] = types;
    const isMethod = target !== undefined;
    if (!isMethod && LOGIC.includes(name))
      return { type: name === '_?_:_' ? DYNAMIC : VALUE, nodes };
    if (!isMethod && COMPARISONS.includes(name)) {
      for (const type of types) checkSingle(type);
      call.args = call.args.map((arg) => callOf(METER.scalar, arg));
      return { type: VALUE, nodes: nodes + 2 };
    }
    if (!isMethod && ARITHMETIC.includes(name)) return { type: DYNAMIC, nodes };
    if (!isMethod && name === '@in' && first !== undefined) {
      checkSingle(first);
      const [item, list] = call.args;
      call.args = [callOf(METER.scalar, requireExpr(item)), callOf(METER.sized, requireExpr(list))];
      return { type: VALUE, nodes: nodes + 2 };
    }
    if (!isMethod && name === '_[_]' && first !== undefined)
      return { type: typeOfIndexed(first), nodes };
    if (name === 'size') {
      if (call.target !== undefined) call.target = callOf(METER.sized, call.target);
      call.args = call.args.map((arg) => callOf(METER.sized, arg));
      return { type: VALUE, nodes: nodes + 1 };
    }
    if (!isMethod && CONVERSIONS.includes(name) && second === undefined) {
      if (name !== 'string') call.args = call.args.map((arg) => callOf(METER.short, arg));
      return { type: VALUE, nodes: nodes + 1 };
    }
    if (isMethod && TEXT_METHODS.includes(name)) {
      if (name === 'matches') this.onPattern(constantText(call.args[0]));
      return { type: VALUE, nodes };
    }
    throw new Error(`${name} is not an allowed function or form; allowed are ${ALLOWED}`);
  }

  private visitLoop(loop: Expr_Comprehension, at: Position): Visited {
    const loops = at.loops + 1;
    if (loops > EXPRESSION_LIMITS.loops)
      throw new Error(`loops are nested more than ${EXPRESSION_LIMITS.loops} deep`);
    if (loop.iterVar2 !== '') throw new Error('loops with two variables are not allowed');
    const range = this.visit(requireExpr(loop.iterRange), at);
    const start = this.visit(requireExpr(loop.accuInit), at);
    const variables = new Map(at.variables)
      .set(loop.iterVar, typeOfLooped(range.type))
      .set(loop.accuVar, DYNAMIC);
    const inLoop = { ...at, loops, variables };
    const condition = requireExpr(loop.loopCondition);
    const step = requireExpr(loop.loopStep);
    const nodes = this.visitAll([condition, step], inLoop).nodes + 1;
    const end = this.visit(requireExpr(loop.result), inLoop);
    loop.iterRange = callOf(METER.sized, requireExpr(loop.iterRange));
    const charge = callOf(METER.charge, constantInt(nodes));
    loop.loopCondition = callOf('_?_:_', charge, condition, constantBool(false));
    const type: ValueType = start.type.kind === 'list' ? start.type : VALUE;
    return { type, nodes: range.nodes + start.nodes + nodes + end.nodes + 1 };
  }
}

function typeOfVariable(name: string, variables: Variables): ValueType {
  const type = variables.get(name.replace(/^\./, ''));
  if (type !== undefined) return type;
  const known = [...variables.keys()].filter((known) => !known.startsWith('@')).join(', ');
  throw new Error(`${name} is not a variable; use ${known}`);
}

function typeOfConstant(kind: string | undefined): ValueType {
  if (kind === 'bytesValue') throw new Error('bytes are not allowed; use texts');
  if (kind === 'nullValue') throw new Error('null is not allowed; use has(…) for absent fields');
  return VALUE;
}

function typeOfSelected(operand: ValueType, name: string): ValueType {
  switch (operand.kind) {
    case 'message': {
      const { message } = operand;
      const field = message.fields.find((candidate) => candidate.name === name);
      if (field !== undefined) return typeOfField(field);
      const known = message.fields.map((candidate) => candidate.name).join(', ');
      throw new Error(`${message.name} has no field ${name}; it has ${known}`);
    }
    case 'map':
      return operand.value;
    case 'list':
      throw new Error(`.${name}: a list has no fields; use exists or all`);
    case 'value':
      throw new Error(`.${name}: a single value has no fields`);
    case 'dynamic':
      return DYNAMIC;
  }
}

function typeOfIndexed(operand: ValueType): ValueType {
  switch (operand.kind) {
    case 'list':
      return operand.item;
    case 'map':
      return operand.value;
    case 'dynamic':
      return DYNAMIC;
    default:
      throw new Error('[…] needs a list or a map');
  }
}

function typeOfLooped(range: ValueType): ValueType {
  switch (range.kind) {
    case 'list':
      return range.item;
    case 'map':
      return VALUE;
    case 'dynamic':
      return DYNAMIC;
    default:
      throw new Error('a loop needs a list or a map');
  }
}

/** Refuses types that are known not to be single values. */
function checkSingle(type: ValueType): void {
  if (type.kind === 'value' || type.kind === 'dynamic') return;
  throw new Error(`a ${type.kind} cannot be compared; compare its fields, items or size`);
}

function constantText(expr: Expr | undefined): string {
  const kind = expr?.exprKind.case === 'constExpr' ? expr.exprKind.value.constantKind : undefined;
  if (kind?.case === 'stringValue') return kind.value;
  throw new Error('matches needs a text in quotes');
}

function requireExpr(expr: Expr | undefined): Expr {
  if (expr === undefined) throw new Error('the expression is incomplete');
  return expr;
}

function toExpr(exprKind: Expr['exprKind']): Expr {
  return { $typeName: 'cel.expr.Expr', id: 0n, exprKind };
}

function callOf(name: string, ...args: Expr[]): Expr {
  return toExpr({
    case: 'callExpr',
    value: { $typeName: 'cel.expr.Expr.Call', function: name, args },
  });
}

function constantInt(value: number): Expr {
  return toExpr({
    case: 'constExpr',
    value: {
      $typeName: 'cel.expr.Constant',
      constantKind: { case: 'int64Value', value: BigInt(value) },
    },
  });
}

function constantBool(value: boolean): Expr {
  return toExpr({
    case: 'constExpr',
    value: { $typeName: 'cel.expr.Constant', constantKind: { case: 'boolValue', value } },
  });
}
