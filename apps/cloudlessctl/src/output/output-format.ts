import { createUsageFailure } from '../call/failure.js';
import { suggestSimilar } from '../suggest.js';
import { parseJsonPathTemplate, parseJsonPath } from './json-path.js';
import type { JsonPathTemplate } from './json-path.js';
import { JsonPathError } from './json-path-parser.js';
import type { PathSegment } from './json-path-parser.js';

/** Format of results. */
export type OutputFormat =
  'table' | 'wide' | 'json' | 'yaml' | 'name' | 'manifest' | 'jsonpath' | 'custom-columns';

/** A column of `-o custom-columns`. */
export interface CustomColumn {
  readonly header: string;
  readonly path: readonly PathSegment[];
}

/** A parsed value of `--output`. */
export interface OutputChoice {
  readonly output: OutputFormat;
  /** Template of `jsonpath`. */
  readonly template?: JsonPathTemplate;
  /** Columns of `custom-columns`. */
  readonly columns?: readonly CustomColumn[];
}

const SIMPLE_FORMATS = ['table', 'wide', 'json', 'yaml', 'name', 'manifest'] as const;
const FORMAT_LIST = `${SIMPLE_FORMATS.join(', ')}, jsonpath=TEMPLATE, custom-columns=HEADER:PATH,…`;

/**
 * Parses the value of `--output`.
 * @throws {@link CliFailure} with exit code 2 for an unknown format or an invalid template.
 */
export function parseOutput(text: string): OutputChoice {
  const simple = SIMPLE_FORMATS.find((format) => format === text);
  if (simple !== undefined) return { output: simple };
  const [, kind = '', value = ''] = /^(jsonpath|custom-columns)=(.*)$/s.exec(text) ?? [];
  try {
    if (kind === 'jsonpath') return { output: 'jsonpath', template: parseJsonPathTemplate(value) };
    if (kind === 'custom-columns')
      return { output: 'custom-columns', columns: parseCustomColumns(value) };
  } catch (reason) {
    if (!(reason instanceof JsonPathError)) throw reason;
    throw createUsageFailure(`--output ${kind}: ${reason.message}`);
  }
  if (text === 'jsonpath' || text === 'custom-columns')
    throw createUsageFailure(`--output ${text}: write ${EXAMPLES[text]}`);
  throw createUsageFailure(
    `--output: expected one of ${FORMAT_LIST}, got ${JSON.stringify(text)}${suggestSimilar(text, SIMPLE_FORMATS)}`,
  );
}

const EXAMPLES = {
  jsonpath: `jsonpath='{.items[*].name}'`,
  'custom-columns': 'custom-columns=NAME:.name,READY:.status.readyReplicas',
} as const;

function parseCustomColumns(text: string): readonly CustomColumn[] {
  return text.split(',').map((column) => {
    const colon = column.indexOf(':');
    if (colon < 1 || colon === column.length - 1)
      throw createUsageFailure(
        `--output custom-columns: expected HEADER:PATH, got ${JSON.stringify(column)}; for example ${EXAMPLES['custom-columns']}`,
      );
    return { header: column.slice(0, colon), path: parseJsonPath(column.slice(colon + 1)) };
  });
}

/**
 * Parses the value of `--sort-by`: a path such as `.status.readyReplicas`.
 * @throws {@link CliFailure} with exit code 2 for an invalid path.
 */
export function parseSortPath(text: string): readonly PathSegment[] {
  return parsePathOption(text, '--sort-by', '--sort-by .name');
}

/**
 * Parses a path that is the value of an option.
 * @param example - A valid use of the option, for the message.
 * @throws {@link CliFailure} with exit code 2 when the path is invalid.
 */
export function parsePathOption(
  text: string,
  option: string,
  example: string,
): readonly PathSegment[] {
  try {
    return parseJsonPath(text);
  } catch (reason) {
    if (!(reason instanceof JsonPathError)) throw reason;
    throw createUsageFailure(`${option}: ${reason.message}; for example ${example}`);
  }
}
