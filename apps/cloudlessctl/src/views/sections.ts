import type { Style } from '../output/style.js';
import { toOneLine } from '../output/table.js';

/**
 * Formats `Name: value` lines with aligned values. Fields with an empty value are left out. A value
 * of several lines is an indented block below its name, so that a script stays a script.
 */
export function formatFields(fields: readonly (readonly [string, string])[]): string {
  const present = fields.filter(([, value]) => value !== '');
  const width = Math.max(0, ...present.map(([name]) => name.length)) + 1;
  return present
    .map(([name, value]) => {
      const lines = value.trim().split('\n');
      if (lines.length > 1) return `${name}:\n${lines.map(formatBlockLine).join('')}`;
      return `${`${name}:`.padEnd(width)}  ${toOneLine(value)}\n`;
    })
    .join('');
}

/** Formats a line of a block; control characters other than a tab become spaces. */
function formatBlockLine(line: string): string {
  return `    ${line.replaceAll(/(?!\t)\p{Cc}/gu, ' ').trimEnd()}\n`;
}

/** Spaces before the lines of a section with a title. */
export const SECTION_INDENT = 2;

/**
 * Formats sections with an empty line between them. The body of a section with a title is indented.
 * Sections with an empty body are left out.
 */
export function formatSections(
  style: Style,
  sections: readonly (readonly [title: string, body: string])[],
): string {
  return sections
    .filter(([, body]) => body !== '')
    .map(([title, body]) =>
      title === ''
        ? body
        : `${style.bold(`${title}:`)}\n${body.replaceAll(/^(?=.)/gm, ' '.repeat(SECTION_INDENT))}`,
    )
    .join('\n');
}
