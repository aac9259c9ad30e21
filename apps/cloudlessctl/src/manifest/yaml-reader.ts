import { LineCounter, isAlias, isMap, isScalar, isSeq, parseAllDocuments } from 'yaml';
import type { Document, Node } from 'yaml';
import { didYouMean } from '../suggest.js';
import { quoted } from '../quantity.js';

/** One thing wrong with a file: where, in which field, and what to do about it. */
export interface Problem {
  readonly file: string;
  /** From 1. */
  readonly line: number;
  /** From 1. */
  readonly column: number;
  /** As in `spec.ports[0].name`; empty for the whole document. */
  readonly path: string;
  readonly message: string;
}

/** `web.yaml:7:5: spec.replicas: expected a whole number, got true`. */
export function formatProblem({ file, line, column, path, message }: Problem): string {
  return `${file}:${line}:${column}: ${path === '' ? '' : `${path}: `}${message}`;
}

/** A key of a map with its value, aliases followed. */
export interface Entry {
  readonly key: string;
  readonly keyNode: Node;
  readonly value: Node | null;
}

/** Larger files are refused unread. */
export const MAX_FILE_BYTES = 1024 * 1024;
/** Maps and lists inside each other; deeper than any schema needs. */
export const MAX_DEPTH = 32;
/** Aliases followed in one file: a handful is a convenience, thousands are an attack. */
export const MAX_ALIASES = 100;
/** One missing bracket makes many follow. */
const MAX_SYNTAX_PROBLEMS = 5;
/** More wrong things than this are not listed. */
const MAX_PROBLEMS = 100;

/**
 * One YAML or JSON file while it is read: knows where every node stands, follows aliases within
 * bounds, and collects what is wrong instead of stopping at the first.
 */
export class YamlReader {
  readonly problems: Problem[] = [];
  readonly documents: readonly Document.Parsed[];
  private readonly lines = new LineCounter();
  private aliases = 0;

  /** @param file - The name for messages. */
  constructor(
    readonly file: string,
    bytes: Uint8Array,
  ) {
    this.documents = this.parse(bytes);
  }

  /** Notes that something is wrong at `node` (the start of the file without one). */
  report(node: Node | null | undefined, path: string, message: string): void {
    this.reportAt(node?.range?.[0] ?? 0, path, message);
  }

  /**
   * The entries of a map whose keys are texts; reports and returns `undefined` when it is something
   * else.
   */
  entries(
    document: Document.Parsed,
    node: Node | null,
    at: Node | null,
    path: string,
  ): readonly Entry[] | undefined {
    if (!isMap(node)) {
      this.report(node ?? at, path, `expected a map, got ${describeNode(node)}`);
      return undefined;
    }
    const entries: Entry[] = [];
    const seen = new Set<string>();
    for (const pair of node.items) {
      const keyNode = this.follow(document, pair.key as Node | null);
      if (keyNode === null || !isScalar(keyNode) || typeof keyNode.value !== 'string') {
        const shown =
          isScalar(keyNode) && keyNode.source !== undefined ? `; write "${keyNode.source}"` : '';
        this.report(
          keyNode ?? node,
          path,
          `expected a text as key, got ${describeNode(keyNode)}${shown}`,
        );
        continue;
      }
      if (seen.has(keyNode.value)) {
        this.report(
          keyNode,
          path === '' ? keyNode.value : `${path}.${keyNode.value}`,
          'is written twice',
        );
        continue;
      }
      seen.add(keyNode.value);
      entries.push({
        key: keyNode.value,
        keyNode,
        value: this.follow(document, pair.value as Node | null),
      });
    }
    return entries;
  }

  /** The items of a list; reports and returns `undefined` when it is something else. */
  items(
    document: Document.Parsed,
    node: Node | null,
    at: Node | null,
    path: string,
  ): readonly (Node | null)[] | undefined {
    if (!isSeq(node)) {
      this.report(node ?? at, path, `expected a list, got ${describeNode(node)}`);
      return undefined;
    }
    return node.items.map((item) => this.follow(document, item as Node | null));
  }

  /** A text; reports and returns `undefined` when it is something else. */
  text(node: Node | null, at: Node | null, path: string): string | undefined {
    if (isScalar(node) && typeof node.value === 'string') return node.value;
    const source = isScalar(node) && node.value !== null ? node.source : undefined;
    this.report(
      node ?? at,
      path,
      `expected a text, got ${describeNode(node)}${source === undefined ? '' : `; write "${source}"`}`,
    );
    return undefined;
  }

  /** Notes a key nobody knows, with the one that was probably meant. */
  unknownKey(entry: Entry, path: string, known: Iterable<string>): void {
    this.report(entry.keyNode, path, `unknown key${didYouMean(entry.key, known)}`);
  }

  /** The node itself, or what an alias stands for; `null` when that is nothing. */
  follow(document: Document.Parsed, node: Node | null | undefined): Node | null {
    if (node === null || node === undefined) return null;
    if (!isAlias(node)) return node;
    this.aliases += 1;
    if (this.aliases > MAX_ALIASES) {
      if (this.aliases === MAX_ALIASES + 1)
        this.report(node, '', `more than ${MAX_ALIASES} aliases`);
      return null;
    }
    const found = node.resolve(document);
    if (found === undefined) this.report(node, '', `the alias *${node.source} stands for nothing`);
    return (found as Node | undefined) ?? null;
  }

  private parse(bytes: Uint8Array): readonly Document.Parsed[] {
    if (bytes.length > MAX_FILE_BYTES) {
      this.reportAt(0, '', `larger than 1 MiB (${bytes.length} bytes)`);
      return [];
    }
    let text: string;
    try {
      text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    } catch {
      this.reportAt(0, '', 'not UTF-8 text');
      return [];
    }
    try {
      const documents = parseAllDocuments(text, {
        version: '1.2',
        schema: 'core',
        uniqueKeys: false, // reported in `entries`, with the path, beside all other problems
        intAsBigInt: true,
        prettyErrors: false,
        logLevel: 'silent',
        lineCounter: this.lines,
      });
      const parsed = 'empty' in documents ? [] : documents;
      for (const document of parsed) {
        const faults = [...document.errors, ...document.warnings];
        if (faults.some(({ message }) => message.startsWith('Maximum call stack')))
          throw new RangeError('too deep');
        for (const { pos, message } of faults.slice(0, MAX_SYNTAX_PROBLEMS))
          this.reportAt(pos[0], '', firstLine(message));
      }
      return parsed;
    } catch (reason) {
      // The parser recurses, and so ends at the end of the stack when it is given a hundred
      // thousand brackets.
      if (!(reason instanceof RangeError)) throw reason;
      this.reportAt(0, '', `more than ${MAX_DEPTH} maps and lists inside each other`);
      return [];
    }
  }

  private reportAt(offset: number, path: string, message: string): void {
    if (this.problems.length >= MAX_PROBLEMS) return;
    const { line, col } = this.lines.linePos(offset);
    this.problems.push({
      file: this.file,
      line: Math.max(1, line),
      column: Math.max(1, col),
      path,
      message,
    });
  }
}

/** What a node is, for people: `the text "abc"`, `the number 3`, `nothing`. */
export function describeNode(node: Node | null): string {
  if (isMap(node)) return 'a map';
  if (isSeq(node)) return 'a list';
  if (!isScalar(node) || node.value === null) return 'nothing';
  if (typeof node.value === 'string') return `the text ${quoted(node.value)}`;
  if (typeof node.value === 'boolean') return String(node.value);
  return `the number ${node.source ?? String(node.value)}`;
}

function firstLine(message: string): string {
  return message.split('\n', 1)[0] ?? message;
}
