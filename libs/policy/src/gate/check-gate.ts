import type { Expr, Expr_Call, Expr_Select } from '@bufbuild/cel-spec/cel/expr/syntax_pb.js';
import { EXPRESSION_LIMITS } from '../expression/budget.js';
import { GATE_FIGURES, isGateFigure, STABLE_PREFIX } from './gate-figures.js';

type GateType = 'number' | 'boolean';

const LOGIC: readonly string[] = ['_&&_', '_||_', '!_'];
const ORDER: readonly string[] = ['_<_', '_<=_', '_>_', '_>=_'];
const EQUALITY: readonly string[] = ['_==_', '_!=_'];
const ARITHMETIC: readonly string[] = ['_+_', '_-_', '_*_', '_/_', '-_'];
const ALLOWED = 'numbers, true, false, && || ! < <= > >= == != + - * / and ?:';

/**
 * Checks the types of a gate, so that its evaluation yields true or false for any figures, and makes
 * each of its numbers a fraction, as figures are, in place.
 * @returns The figures that the gate uses, in the order of its text, each once.
 * @throws An error with a message for people.
 */
export function checkGate(root: Expr): readonly string[] {
  const figures = new Set<string>();
  const type = new GateCheck(figures).visit(root, 0);
  if (type !== 'boolean')
    throw new Error('the result is a number; a gate needs true or false, as of a comparison');
  if (figures.size === 0)
    throw new Error(
      `the gate uses no figure; use ${formatFigures()}, or those of ${STABLE_PREFIX}`,
    );
  return [...figures];
}

/** Walks the syntax tree of a gate. */
class GateCheck {
  constructor(private readonly figures: Set<string>) {}

  visit(expr: Expr, depth: number): GateType {
    if (depth > EXPRESSION_LIMITS.depth)
      throw new Error(`the expression is more than ${EXPRESSION_LIMITS.depth} levels deep`);
    const { exprKind } = expr;
    switch (exprKind.case) {
      case 'constExpr':
        return visitConstant(expr);
      case 'identExpr':
        return this.addFigure(exprKind.value.name.replace(/^\./, ''), '');
      case 'selectExpr':
        return this.visitSelect(exprKind.value);
      case 'callExpr':
        return this.visitCall(exprKind.value, depth + 1);
      default:
        throw new Error(`a gate has no lists, maps and loops; allowed are ${ALLOWED}`);
    }
  }

  private visitSelect({ operand, field, testOnly }: Expr_Select): GateType {
    const name = operand?.exprKind.case === 'identExpr' ? operand.exprKind.value.name : undefined;
    if (testOnly)
      throw new Error('has(…) is not allowed: without one of its figures a gate never passes');
    if (name !== undefined && `${name}.` === STABLE_PREFIX)
      return this.addFigure(field, STABLE_PREFIX);
    throw new Error(`.${field}: only ${STABLE_PREFIX.slice(0, -1)} has figures`);
  }

  private addFigure(name: string, prefix: string): GateType {
    if (!isGateFigure(name))
      throw new Error(
        `${prefix}${name} is not a variable; use ${formatFigures()}, also with ${STABLE_PREFIX} before`,
      );
    this.figures.add(`${prefix}${name}`);
    return 'number';
  }

  private visitCall(call: Expr_Call, depth: number): GateType {
    const { function: name, args, target } = call;
    if (target !== undefined || name === '') throw refuseFunction(name);
    if (name === '_?_:_') {
      const [condition, first, second] = args.map((arg) => this.visit(arg, depth));
      requireType(condition, 'boolean', name);
      requireType(first, second ?? 'boolean', name);
      return first ?? 'boolean';
    }
    const known = [LOGIC, ORDER, EQUALITY, ARITHMETIC].some((names) => names.includes(name));
    if (!known) throw refuseFunction(name);
    const types = args.map((arg) => this.visit(arg, depth));
    if (EQUALITY.includes(name)) requireType(types[0], types[1] ?? 'boolean', name);
    else
      for (const type of types)
        requireType(type, LOGIC.includes(name) ? 'boolean' : 'number', name);
    return ARITHMETIC.includes(name) ? 'number' : 'boolean';
  }
}

function visitConstant(expr: Expr): GateType {
  const kind = expr.exprKind.case === 'constExpr' ? expr.exprKind.value.constantKind : undefined;
  switch (kind?.case) {
    case 'boolValue':
      return 'boolean';
    case 'doubleValue':
      return 'number';
    case 'int64Value':
    case 'uint64Value':
      expr.exprKind = {
        case: 'constExpr',
        value: {
          $typeName: 'cel.expr.Constant',
          constantKind: { case: 'doubleValue', value: Number(kind.value) },
        },
      };
      return 'number';
    default:
      throw new Error(`a gate has no texts, bytes and null; allowed are ${ALLOWED}`);
  }
}

function requireType(type: GateType | undefined, wanted: GateType, name: string): void {
  if (type !== wanted)
    throw new Error(
      `${name.replaceAll('_', '')}: a ${wanted} is needed, not ${type === undefined ? 'nothing' : `a ${type}`}`,
    );
}

function refuseFunction(name: string): Error {
  return new Error(`${name} is not an allowed function or form; allowed are ${ALLOWED}`);
}

function formatFigures(): string {
  return GATE_FIGURES.join(', ');
}
