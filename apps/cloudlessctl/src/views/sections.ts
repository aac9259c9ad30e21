import type { Style } from '../output/style.js';
import { toOneLine } from '../output/table.js';

/** Formats `Name: value` lines with aligned values; fields without a value are left out. */
export function formatFields(fields: readonly (readonly [string, string])[]): string {
  const present = fields.filter(([, value]) => value !== '');
  const width = Math.max(0, ...present.map(([name]) => name.length)) + 1;
  return present
    .map(([name, value]) => `${`${name}:`.padEnd(width)}  ${toOneLine(value)}\n`)
    .join('');
}

/**
 * Formats titled, indented blocks with an empty line between them; a block without a title is not
 * indented.
 */
export function formatSections(
  style: Style,
  sections: readonly (readonly [title: string, body: string])[],
): string {
  return sections
    .filter(([, body]) => body !== '')
    .map(([title, body]) =>
      title === '' ? body : `${style.bold(`${title}:`)}\n${body.replaceAll(/^(?=.)/gm, '  ')}`,
    )
    .join('\n');
}
