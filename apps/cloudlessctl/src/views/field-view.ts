import type { ManifestField } from '../manifest/find-field.js';
import type { Style } from '../output/style.js';

/** Widest line of a description. Longer lines are hard to read. */
const MAX_WIDTH = 100;
/** Narrowest line of a description, also in a narrower terminal. */
const MIN_WIDTH = 40;

/**
 * Formats the documentation of a manifest field and of the fields below.
 * @param width - Width of the output in characters.
 * @param isRecursive - Shows the names and types of the fields at every level, without
 *   descriptions.
 */
export function formatField(
  field: ManifestField,
  width: number,
  isRecursive: boolean,
  style: Style,
): string {
  const lineWidth = Math.max(MIN_WIDTH, Math.min(MAX_WIDTH, width));
  const lines = [
    `${style.bold(field.path === '' ? 'manifest' : field.path)}   ${style.dim(typeOf(field))}`,
    ...indent(wrapWords(field.description, lineWidth - 4), 4),
    ...formatValues(field, lineWidth),
  ];
  if (field.fields.length > 0) lines.push('', 'Fields:');
  lines.push(
    ...(isRecursive
      ? formatTree(field, 1, style)
      : field.fields.flatMap((inner) => [
          `  ${style.bold(nameOf(inner))}   ${style.dim(typeOf(inner))}`,
          ...indent(wrapWords(inner.description, lineWidth - 6), 6),
        ])),
  );
  return `${lines.join('\n')}\n`;
}

/** Returns the type; of an enum, with its values. */
function typeOf({ type, values }: ManifestField): string {
  return values.length === 0 ? type : `${type} ${values.map(({ name }) => name).join(', ')}`;
}

function formatValues({ values }: ManifestField, width: number): readonly string[] {
  if (values.length === 0) return [];
  return [
    '',
    'Values:',
    ...values.flatMap(({ name, description }) => [
      `  ${name}`,
      ...indent(wrapWords(description, width - 6), 6),
    ]),
  ];
}

function formatTree(field: ManifestField, level: number, style: Style): readonly string[] {
  return field.fields.flatMap((inner) => [
    `${'  '.repeat(level)}${nameOf(inner)}   ${style.dim(typeOf(inner))}`,
    ...formatTree(inner, level + 1, style),
  ]);
}

/** Returns the last part of the path of a field. */
function nameOf({ path }: ManifestField): string {
  return path.slice(path.lastIndexOf('.') + 1);
}

function indent(lines: readonly string[], spaces: number): readonly string[] {
  return lines.map((line) => `${' '.repeat(spaces)}${line}`);
}

/** Breaks a text between words. A word longer than `width` has a line of its own. */
function wrapWords(text: string, width: number): readonly string[] {
  const lines: string[] = [];
  for (const word of text.split(' ').filter((part) => part !== '')) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= width)
      lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}
