import stringWidth from 'string-width';

/**
 * Returns the width of a text on a terminal, in character cells: 2 for an East Asian wide character
 * or an emoji, 0 for a combining mark or a colour code.
 */
export function getTextWidth(text: string): number {
  return stringWidth(text);
}

/**
 * Breaks a text into lines of at most `width` cells, at spaces where possible. A word that is longer
 * than a line is broken after any character. Returns at least one line.
 * @param width - At least 2, so that every character fits on a line.
 */
export function wrapText(text: string, width: number): readonly string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(/ +/)) {
    const candidate = line === '' ? word : `${line} ${word}`;
    if (getTextWidth(candidate) <= width) {
      line = candidate;
      continue;
    }
    if (line !== '') lines.push(line);
    line = word;
    while (getTextWidth(line) > width) {
      const head = takeCells(line, width);
      lines.push(head);
      line = line.slice(head.length);
    }
  }
  if (line !== '' || lines.length === 0) lines.push(line);
  return lines;
}

/** Shortens a text to at most `width` cells; `…` takes the place of the end. */
export function shortenText(text: string, width: number): string {
  return getTextWidth(text) <= width ? text : `${takeCells(text, width - 1)}…`;
}

/** Appends spaces up to `width` cells. */
export function padText(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - getTextWidth(text)));
}

/** Returns the longest start of a text with at most `width` cells, at least one character. */
function takeCells(text: string, width: number): string {
  let taken = '';
  for (const { segment } of new Intl.Segmenter().segment(text)) {
    if (taken !== '' && getTextWidth(taken + segment) > width) break;
    taken += segment;
  }
  return taken;
}
