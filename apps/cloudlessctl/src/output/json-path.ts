import type { JsonValue } from '@bufbuild/protobuf';
import { JsonPathParser } from './json-path-parser.js';
import type { Comparison, PathSegment, TemplatePart } from './json-path-parser.js';

/** A parsed template of `-o jsonpath`. */
export type JsonPathTemplate = readonly TemplatePart[];

/**
 * Parses a template of `-o jsonpath`: the syntax of `kubectl`, without unions (`[0,2]`). Text
 * outside of braces is printed as it is; in braces: a path (`.status.replicas[*].nodeId`), a text
 * (`"\n"`), or `range PATH` up to `end`. A template without braces is one path.
 * @throws {@link JsonPathError} with the position of the problem.
 */
export function parseJsonPathTemplate(text: string): JsonPathTemplate {
  return new JsonPathParser(text.includes('{') ? text : `{${text}}`).parseTemplate();
}

/**
 * Parses one path: `.status.phase`, also without the first dot or with braces.
 * @throws {@link JsonPathError} with the position of the problem.
 */
export function parseJsonPath(text: string): readonly PathSegment[] {
  const bare = /^\{(.*)\}$/.exec(text)?.[1] ?? text;
  return new JsonPathParser(/^[\w-]/.test(bare) ? `.${bare}` : bare).parseWholePath();
}

/**
 * Evaluates a template. Several values of a path are separated by a space; a path without a value
 * prints nothing; maps and lists are printed as JSON.
 */
export function formatJsonPath(template: JsonPathTemplate, root: JsonValue): string {
  return formatParts(template, root, root);
}

/** Returns the values that a path selects below a value. */
export function selectJsonPath(
  path: readonly PathSegment[],
  value: JsonValue,
  root: JsonValue = value,
): readonly JsonValue[] {
  return path.reduce<readonly JsonValue[]>(
    (values, segment) => values.flatMap((item) => followSegment(segment, item, root)),
    [value],
  );
}

/** Formats a value for people and scripts: a text without quotes, a map or list as JSON. */
export function formatJsonText(value: JsonValue): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function formatParts(parts: JsonPathTemplate, current: JsonValue, root: JsonValue): string {
  return parts
    .map((part) => {
      if (part.kind === 'text') return part.text;
      const values = selectJsonPath(part.path, current, root);
      return part.kind === 'path'
        ? values.map(formatJsonText).join(' ')
        : values.map((value) => formatParts(part.body, value, root)).join('');
    })
    .join('');
}

function followSegment(
  segment: PathSegment,
  value: JsonValue,
  root: JsonValue,
): readonly JsonValue[] {
  switch (segment.kind) {
    case 'root':
      return [root];
    case 'field':
      return isMap(value) && Object.hasOwn(value, segment.name) ? toList(value[segment.name]) : [];
    case 'wildcard':
      return listChildren(value);
    case 'descent':
      return listDescendants(value);
    case 'index':
      return Array.isArray(value) ? toList(value.at(segment.index)) : [];
    case 'slice':
      return Array.isArray(value) ? value.slice(segment.from, segment.to) : [];
    case 'filter':
      return listChildren(value).filter((item) =>
        selectJsonPath(segment.path, item, root).some((found) =>
          matches(found, segment.comparison),
        ),
      );
  }
}

function matches(found: JsonValue, comparison: Comparison | undefined): boolean {
  if (comparison === undefined) return true;
  const { operator, literal } = comparison;
  const order = compareJsonValues(found, literal);
  switch (operator) {
    case '==':
      return order === 0;
    case '!=':
      return order !== 0;
    case '<':
      return order < 0;
    case '<=':
      return order <= 0;
    case '>':
      return order > 0;
    case '>=':
      return order >= 0;
  }
}

/**
 * Compares two values: numbers by size, also those that protobuf JSON writes as text; times by
 * time; other values by their text.
 * @returns A negative number when `a` comes first, 0 for equal values.
 */
export function compareJsonValues(a: JsonValue, b: JsonValue): number {
  const [left, right] = [toNumber(a), toNumber(b)];
  if (left !== undefined && right !== undefined) return left < right ? -1 : left > right ? 1 : 0;
  const [leftText, rightText] = [formatJsonText(a), formatJsonText(b)];
  return leftText < rightText ? -1 : leftText > rightText ? 1 : 0;
}

function toNumber(value: JsonValue): number | undefined {
  if (typeof value === 'number') return value;
  if (typeof value !== 'string') return undefined;
  if (/^-?\d+(\.\d+)?$/.test(value)) return Number(value);
  return TIMESTAMP.test(value) ? Date.parse(value) : undefined;
}

/** A time as in protobuf JSON. */
const TIMESTAMP = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/;

function isMap(value: JsonValue | undefined): value is Record<string, JsonValue> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function listChildren(value: JsonValue): readonly JsonValue[] {
  if (Array.isArray(value)) return value;
  return isMap(value) ? Object.values(value) : [];
}

/** Returns a value and all values below it, outermost first. */
function listDescendants(value: JsonValue): readonly JsonValue[] {
  return [value, ...listChildren(value).flatMap(listDescendants)];
}

function toList(value: JsonValue | undefined): readonly JsonValue[] {
  return value === undefined ? [] : [value];
}
