/** One step of a path. */
export type PathSegment =
  | { readonly kind: 'root' }
  | { readonly kind: 'field'; readonly name: string }
  | { readonly kind: 'wildcard' }
  | { readonly kind: 'descent' }
  | { readonly kind: 'index'; readonly index: number }
  | { readonly kind: 'slice'; readonly from: number; readonly to: number | undefined }
  | {
      readonly kind: 'filter';
      readonly path: readonly PathSegment[];
      readonly comparison: Comparison | undefined;
    };

/** The right side of a filter. */
export interface Comparison {
  readonly operator: (typeof OPERATORS)[number];
  readonly literal: string | number | boolean;
}

/** A part of a template. */
export type TemplatePart =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'path'; readonly path: readonly PathSegment[] }
  | {
      readonly kind: 'range';
      readonly path: readonly PathSegment[];
      readonly body: readonly TemplatePart[];
    };

/** A template or path that cannot be parsed. The message names the position, from 1. */
export class JsonPathError extends Error {
  override readonly name = 'JsonPathError';
}

/** Longer operators first, so that `<=` is not read as `<`. */
const OPERATORS = ['==', '!=', '<=', '>=', '<', '>'] as const;
const ESCAPES: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r' };

/** Reads one template or path from left to right. */
export class JsonPathParser {
  private position = 0;

  constructor(private readonly text: string) {}

  /** Parses text and actions up to the end. */
  parseTemplate(): readonly TemplatePart[] {
    return this.parseParts(undefined);
  }

  /** Parses a path up to the end. */
  parseWholePath(): readonly PathSegment[] {
    const path = this.parsePath();
    if (this.position < this.text.length) this.fail(`unexpected ${this.showRest()}`);
    return path;
  }

  /** @param rangeStart - Position of the `range` to be ended; undefined outside of a range. */
  private parseParts(rangeStart: number | undefined): readonly TemplatePart[] {
    const parts: TemplatePart[] = [];
    while (this.position < this.text.length) {
      const start = this.position;
      if (!this.take('{')) {
        const end = this.text.indexOf('{', start);
        this.position = end < 0 ? this.text.length : end;
        parts.push({ kind: 'text', text: this.text.slice(start, this.position) });
        continue;
      }
      this.skipSpaces();
      if (this.takeWord('end')) {
        if (rangeStart === undefined) this.fail('{end} without {range}', start);
        this.closeAction();
        return parts;
      }
      parts.push(this.parseAction(start));
    }
    if (rangeStart !== undefined) this.fail('{range} without {end}', rangeStart);
    return parts;
  }

  private parseAction(start: number): TemplatePart {
    if (this.takeWord('range')) {
      this.skipSpaces();
      const path = this.parsePath();
      this.closeAction();
      return { kind: 'range', path, body: this.parseParts(start) };
    }
    if (this.peek() === '"' || this.peek() === "'") {
      const text = this.parseString();
      this.closeAction();
      return { kind: 'text', text };
    }
    const path = this.parsePath();
    this.closeAction();
    return { kind: 'path', path };
  }

  private closeAction(): void {
    this.skipSpaces();
    if (!this.take('}')) this.fail(`expected } but found ${this.showRest()}`);
  }

  private parsePath(): readonly PathSegment[] {
    const segments: PathSegment[] = [];
    if (this.take('$')) segments.push({ kind: 'root' });
    else if (!this.take('@') && this.peek() !== '.' && this.peek() !== '[')
      this.fail(`expected a path such as .status.phase but found ${this.showRest()}`);
    for (;;) {
      if (this.take('..')) {
        segments.push({ kind: 'descent' });
        if (this.peek() !== '[') segments.push(this.parseName());
      } else if (this.take('.')) {
        // A single dot is the current value.
        if (segments.length === 0 && !/[\w*-]/.test(this.peek())) continue;
        segments.push(this.parseName());
      } else if (this.take('[')) {
        segments.push(this.parseSubscript());
      } else return segments;
    }
  }

  private parseName(): PathSegment {
    if (this.take('*')) return { kind: 'wildcard' };
    // A backslash makes a dot part of the name, as in `.labels.example\.com/app`.
    const match = /^(?:[\w/-]|\\.)+/.exec(this.text.slice(this.position));
    if (match === null) this.fail(`expected a field name but found ${this.showRest()}`);
    this.position += match[0].length;
    return { kind: 'field', name: match[0].replaceAll(/\\(.)/g, '$1') };
  }

  /** Parses what follows `[`. */
  private parseSubscript(): PathSegment {
    if (this.take('?(')) {
      const filter = this.parseFilter();
      this.expect(')]');
      return filter;
    }
    if (this.take('*')) {
      this.expect(']');
      return { kind: 'wildcard' };
    }
    if (this.peek() === '"' || this.peek() === "'") {
      const name = this.parseString();
      this.expect(']');
      return { kind: 'field', name };
    }
    const from = this.takeInteger();
    if (this.take(':')) {
      const to = this.takeInteger();
      this.expect(']');
      return { kind: 'slice', from: from ?? 0, to };
    }
    if (from === undefined)
      this.fail(`expected a number, *, a quoted name or ?( but found ${this.showRest()}`);
    if (this.peek() === ',') this.fail('several numbers in one [ ] are not supported');
    this.expect(']');
    return { kind: 'index', index: from };
  }

  private parseFilter(): PathSegment {
    this.skipSpaces();
    const path = this.parsePath();
    this.skipSpaces();
    const operator = OPERATORS.find((candidate) => this.take(candidate));
    if (operator === undefined) return { kind: 'filter', path, comparison: undefined };
    this.skipSpaces();
    const literal = this.parseLiteral();
    this.skipSpaces();
    return { kind: 'filter', path, comparison: { operator, literal } };
  }

  private parseLiteral(): string | number | boolean {
    if (this.peek() === '"' || this.peek() === "'") return this.parseString();
    const match = /^(?:true|false|-?\d+(?:\.\d+)?)/.exec(this.text.slice(this.position));
    if (match === null)
      this.fail(`expected a quoted text, a number, true or false but found ${this.showRest()}`);
    this.position += match[0].length;
    return match[0] === 'true' || (match[0] === 'false' ? false : Number(match[0]));
  }

  private parseString(): string {
    const start = this.position;
    const quote = this.peek();
    let text = '';
    for (let index = start + 1; index < this.text.length; index += 1) {
      const character = this.text[index] ?? '';
      if (character === quote) {
        this.position = index + 1;
        return text;
      }
      if (character === '\\') {
        index += 1;
        const escaped = this.text[index] ?? '';
        text += ESCAPES[escaped] ?? escaped;
      } else text += character;
    }
    return this.fail(`the text has no closing ${quote}`, start);
  }

  private takeInteger(): number | undefined {
    const match = /^-?\d{1,9}/.exec(this.text.slice(this.position));
    if (match === null) return undefined;
    this.position += match[0].length;
    return Number(match[0]);
  }

  private takeWord(word: string): boolean {
    const rest = this.text.slice(this.position);
    if (!rest.startsWith(word) || /^[\w.[]/.test(rest.slice(word.length))) return false;
    this.position += word.length;
    return true;
  }

  private expect(token: string): void {
    if (!this.take(token)) this.fail(`expected ${token} but found ${this.showRest()}`);
  }

  private take(token: string): boolean {
    if (!this.text.startsWith(token, this.position)) return false;
    this.position += token.length;
    return true;
  }

  private peek(): string {
    return this.text[this.position] ?? '';
  }

  private skipSpaces(): void {
    while (this.peek() === ' ') this.position += 1;
  }

  private showRest(): string {
    const rest = this.text.slice(this.position, this.position + 20);
    return rest === '' ? 'the end' : JSON.stringify(rest);
  }

  private fail(problem: string, position = this.position): never {
    throw new JsonPathError(`position ${position + 1}: ${problem}`);
  }
}
