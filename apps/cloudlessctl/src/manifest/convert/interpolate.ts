import { isMap } from './source-map.js';
import type { ConversionNote, ReportNote } from './source-map.js';

/**
 * Replaces `$NAME`, `${NAME}`, `${NAME:-default}`, `${NAME-default}`, `${NAME:?message}` and `$$` in
 * all texts below `value`, as Compose does. Reports variables that have neither a value nor a
 * default, which become empty.
 */
export function interpolate(
  value: unknown,
  env: Readonly<Record<string, string | undefined>>,
  report: ReportNote,
  path: ConversionNote['path'] = [],
): unknown {
  if (typeof value === 'string') return interpolateText(value, env, report, path);
  if (Array.isArray(value))
    return value.map((item: unknown, index) => interpolate(item, env, report, [...path, index]));
  if (!isMap(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [
      key,
      interpolate(item, env, report, [...path, key]),
    ]),
  );
}

function interpolateText(
  text: string,
  env: Readonly<Record<string, string | undefined>>,
  report: ReportNote,
  path: ConversionNote['path'],
): string {
  return text.replaceAll(
    /\$(?:(\$)|([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-?+])([^}]*))?\})/g,
    (_whole, dollar?: string, plain?: string, braced?: string, operator = '', word = '') => {
      if (dollar !== undefined) return '$';
      const name = plain ?? braced ?? '';
      const value = env[name];
      const isSet = value !== undefined && (value !== '' || !operator.startsWith(':'));
      if (operator.endsWith('+')) return isSet ? word : '';
      if (isSet) return value;
      if (operator.endsWith('-')) return word;
      const reason = operator.endsWith('?') && word !== '' ? `: ${word}` : '';
      report(path, `the variable ${name} is not set and became an empty text${reason}`);
      return '';
    },
  );
}
