/** How much `last_lines` of a replica may hold. */
export const LAST_LINES = { count: 10, characters: 256 } as const;

/** Far more than is kept of a line, and little enough to be searched. */
const SEARCHED_CHARACTERS = 8 * LAST_LINES.characters;
/** Colours and movements of a terminal: CSI sequences of ECMA-48. */
const TERMINAL_SEQUENCE = /\u001b\[[0-?]*[ -/]*[@-~]/g;
/**
 * Control characters but the tab, ends of lines, halves of characters, and what turns the direction
 * of text.
 */
const HARMFUL = /[^\P{Cc}\t]|[\p{Cs}\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;

/**
 * The newest lines of output as they are kept and shown: at most {@link LAST_LINES}, a longer line
 * cut and marked with `…`, and nothing in them that steers a terminal or breaks a line. Lines that
 * were bounded before stay as they are.
 */
export function toLastLines(lines: readonly string[]): string[] {
  return lines.slice(-LAST_LINES.count).map(toHarmlessLine);
}

function toHarmlessLine(line: string): string {
  const searched = line.slice(0, SEARCHED_CHARACTERS);
  const clean = searched
    .replace(TERMINAL_SEQUENCE, '')
    .replace(/\r+$/, '')
    .replace(HARMFUL, visible);
  const characters = [...clean];
  if (characters.length <= LAST_LINES.characters && line.length <= SEARCHED_CHARACTERS)
    return clean;
  return `${characters.slice(0, LAST_LINES.characters - 1).join('')}…`;
}

/** The control pictures of Unicode, such as ␛, begin there. */
const CONTROL_PICTURES = 0x2400;

/** A sign that stands for what cannot be shown. */
function visible(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x20) return String.fromCodePoint(CONTROL_PICTURES + code);
  return code === 0x7f ? '\u2421' : '\ufffd';
}
