/** A part of a foreign file that the conversion leaves out or changes, for the user. */
export interface ConversionNote {
  /** Path such as `services.web.depends_on`. */
  readonly path: readonly (string | number)[];
  /** States what is left out or changed, and what to do instead. */
  readonly message: string;
}

/** Collects the notes of a conversion. */
export type ReportNote = (path: ConversionNote['path'], message: string) => void;

/** The message for a key without a known replacement. */
const NO_EQUIVALENT = 'has no equivalent';

/**
 * A map of a foreign file whose keys are taken one by one. {@link SourceMap.finish} reports every
 * key that was not taken, so that a conversion cannot drop a key without a word.
 */
export class SourceMap {
  private readonly taken = new Set<string>();

  /** @param value - A map; any other value is reported, unless it is absent, and counts as empty. */
  constructor(
    value: unknown,
    readonly path: ConversionNote['path'],
    readonly report: ReportNote,
  ) {
    if (isMap(value)) this.values = value;
    else {
      this.values = {};
      if (value !== undefined && value !== null) report(path, 'left out: expected a map');
    }
  }

  private readonly values: Readonly<Record<string, unknown>>;

  /** Keys of the map. */
  get keys(): readonly string[] {
    return Object.keys(this.values);
  }

  /** Returns a value of any type; undefined for an absent or empty value. */
  take(key: string): unknown {
    this.taken.add(key);
    return this.values[key] ?? undefined;
  }

  /** Returns a scalar as text; undefined when the key is absent. Reports any other value. */
  takeText(key: string): string | undefined {
    const value = this.take(key);
    if (value === undefined) return undefined;
    const text = toText(value);
    if (text === undefined) this.note(key, 'left out: expected a text');
    return text;
  }

  /** Returns a whole number, also one written as text; undefined when the key is absent. */
  takeInteger(key: string): number | undefined {
    const text = this.takeText(key);
    if (text === undefined) return undefined;
    if (/^-?\d{1,15}$/.test(text)) return Number(text);
    this.note(key, `left out: expected a whole number, got ${JSON.stringify(text)}`);
    return undefined;
  }

  /** Returns true or false; undefined when the key is absent. */
  takeFlag(key: string): boolean | undefined {
    const text = this.takeText(key);
    if (text === undefined || text === 'true' || text === 'false')
      return text === undefined ? undefined : text === 'true';
    this.note(key, `left out: expected true or false, got ${JSON.stringify(text)}`);
    return undefined;
  }

  /** Returns the items of a list; empty when the key is absent. A scalar is a list of one item. */
  takeList(key: string): readonly unknown[] {
    const value = this.take(key);
    if (value === undefined) return [];
    if (Array.isArray(value)) return value;
    if (toText(value) !== undefined) return [value];
    this.note(key, 'left out: expected a list');
    return [];
  }

  /** Returns the texts of a list; other items are reported and left out. */
  takeTexts(key: string): readonly string[] {
    return this.takeList(key).flatMap((item, index) => {
      const text = toText(item);
      if (text === undefined) this.report([...this.path, key, index], 'left out: expected a text');
      return text === undefined ? [] : [text];
    });
  }

  /** Returns the maps of a list. */
  takeMaps(key: string): readonly SourceMap[] {
    return this.takeList(key).map(
      (item, index) => new SourceMap(item, [...this.path, key, index], this.report),
    );
  }

  /** Returns the map at a key; an empty map when the key is absent. */
  takeMap(key: string): SourceMap {
    return new SourceMap(this.take(key), [...this.path, key], this.report);
  }

  /** Returns all pairs of scalars as texts. An empty value becomes an empty text. */
  takePairs(): Readonly<Record<string, string>> {
    const pairs = this.keys.flatMap((key): (readonly [string, string])[] => {
      const text = toText(this.take(key) ?? '');
      if (text === undefined) this.note(key, 'left out: expected a text');
      return text === undefined ? [] : [[key, text]];
    });
    return Object.fromEntries(pairs);
  }

  /** Takes keys that describe nothing a cluster acts on. */
  ignore(...keys: readonly string[]): void {
    for (const key of keys) this.taken.add(key);
  }

  /** Reports a note about a key of this map. */
  note(key: string, message: string): void {
    this.report([...this.path, key], message);
  }

  /**
   * Reports every key that was not taken, except extensions (`x-…`).
   * @param reasons - Messages for known keys, such as what to do instead.
   */
  finish(reasons: Readonly<Record<string, string>> = {}): void {
    for (const key of this.keys) {
      if (this.taken.has(key) || key.startsWith('x-')) continue;
      const reason = Object.hasOwn(reasons, key) ? reasons[key] : undefined;
      this.note(key, reason === undefined ? NO_EQUIVALENT : `${NO_EQUIVALENT}: ${reason}`);
    }
  }
}

/** Returns true for a map, and false for a list and null. */
export function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns a scalar as text; undefined for a map, a list and an absent value. */
export function toText(value: unknown): string | undefined {
  return ['string', 'number', 'boolean', 'bigint'].includes(typeof value)
    ? String(value)
    : undefined;
}

/** Returns the entries of a map that have a value. Empty maps and lists count as no value. */
export function withoutEmpty(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => !isEmpty(value)));
}

function isEmpty(value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0;
  return value === undefined || (isMap(value) && Object.keys(value).length === 0);
}
