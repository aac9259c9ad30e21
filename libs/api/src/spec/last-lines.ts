/**
 * Limits of `last_lines` of a replica, the last output of a failed container: enough to show an
 * error, and small in the record of every replica.
 */
export const LAST_LINES = { count: 10, characters: 256 } as const;

/**
 * Code units of a line that are examined: more than are kept, because terminal sequences are
 * removed; bounded, because an agent may report a line of any length.
 */
const EXAMINED_LENGTH = 8 * LAST_LINES.characters;
/** Colours and cursor movements of a terminal: CSI sequences of ECMA-48. */
const TERMINAL_SEQUENCE = /\u001b\[[0-?]*[ -/]*[@-~]/g;
/**
 * Characters that must not be stored: control characters except the tab, line separators, unpaired
 * surrogates, and characters that change the direction of text.
 */
const UNSAFE_CHARACTERS = /[^\P{Cc}\t]|[\p{Cs}\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;

/**
 * Returns the newest lines of output in the form in which they are stored and shown: at most 10
 * lines of at most 256 characters, longer lines truncated and marked with `…`, without sequences
 * that control a terminal or break a line. Idempotent.
 */
export function toLastLines(lines: readonly string[]): string[] {
  return lines.slice(-LAST_LINES.count).map(sanitizeLine);
}

function sanitizeLine(line: string): string {
  const clean = line
    .slice(0, EXAMINED_LENGTH)
    .replace(TERMINAL_SEQUENCE, '')
    .replace(/\r+$/, '')
    .replace(UNSAFE_CHARACTERS, escapeCharacter);
  const characters = [...clean];
  if (characters.length <= LAST_LINES.characters && line.length <= EXAMINED_LENGTH) return clean;
  return `${characters.slice(0, LAST_LINES.characters - 1).join('')}…`;
}

/** First of the Unicode characters that depict control characters, such as ␛. */
const CONTROL_PICTURES = 0x2400;

/** Returns a visible replacement of an unsafe character. */
function escapeCharacter(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x20) return String.fromCodePoint(CONTROL_PICTURES + code);
  return code === 0x7f ? '\u2421' : '\ufffd';
}
