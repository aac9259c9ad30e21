import type { JsonValue } from '@bufbuild/protobuf';
import { createUsageFailure } from '../../call/failure.js';
import { formatJsonText, selectJsonPath } from '../../output/json-path.js';
import { parsePathOption } from '../../output/output-format.js';
import type { PathSegment } from '../../output/json-path-parser.js';
import { suggestSimilar } from '../../suggest.js';

/** Returns true for an object, in JSON, that meets the conditions of `--field-selector`. */
export type FieldFilter = (object: JsonValue) => boolean;

/**
 * Parses the value of `--field-selector`: conditions `field=value` or `field!=value`, separated by
 * commas, all of which an object must meet. A field is a path (`status.phase`), or the name of a
 * field of the status alone (`phase`). Case, `_` and `-` of a value do not matter, so `phase=Running`
 * finds RUNNING. A field without a value counts as an empty text.
 * @param fields - The names of the fields of the object and of its status.
 * @throws {@link CliFailure} with exit code 2 for an invalid condition or an unknown field.
 */
export function parseFieldSelector(text: string, fields: readonly string[]): FieldFilter {
  const conditions = text.split(',').map((part) => parseCondition(part, fields));
  return (object) => conditions.every((condition) => condition(object));
}

function parseCondition(text: string, fields: readonly string[]): FieldFilter {
  const [, field = '', operator = '', wanted = ''] =
    /^\s*([^=!\s]+)\s*(==?|!=)\s*(.*?)\s*$/.exec(text) ?? [];
  if (field === '')
    throw createUsageFailure(
      `--field-selector: expected field=value or field!=value, got ${JSON.stringify(text)}`,
    );
  const first = /^\.?([\w-]+)/.exec(field)?.[1] ?? field;
  if (!fields.includes(first))
    throw createUsageFailure(
      `--field-selector: there is no field ${JSON.stringify(first)}${suggestSimilar(first, fields)}; -o json shows all fields`,
    );
  const path = parsePathOption(field, '--field-selector', '--field-selector phase=Running');
  const target = simplify(wanted);
  return (object) => {
    const found = findValues(path, object);
    const isEqual = found.some((value) => simplify(formatJsonText(value)) === target);
    return isEqual === (operator !== '!=');
  };
}

/** Returns the values of a field of the object, or else of its status. */
function findValues(path: readonly PathSegment[], object: JsonValue): readonly JsonValue[] {
  const direct = selectJsonPath(path, object);
  if (direct.length > 0) return direct;
  const inStatus = selectJsonPath([{ kind: 'field', name: 'status' }, ...path], object);
  return inStatus.length > 0 ? inStatus : [''];
}

const simplify = (text: string): string => text.toLowerCase().replaceAll(/[_-]/g, '');
