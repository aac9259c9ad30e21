import { LineCounter, isAlias, isMap, isScalar, isSeq, parseAllDocuments } from 'yaml';
import type { Document, Node, Scalar } from 'yaml';
import { suggestKnown } from '../suggest.js';
import { quoteText } from '../quantity.js';

/** A problem of a file: position, field path and message. */
export interface Problem {
  readonly file: string;
  /** From 1. */
  readonly line: number;
  /** From 1. */
  readonly column: number;
  /** Path such as `spec.ports[0].name`; empty for the whole document. */
  readonly path: string;
  readonly message: string;
}

/** Formats a problem: `web.yaml:7:5: spec.replicas: expected a whole number, got true`. */
export function formatProblem({ file, line, column, path, message }: Problem): string {
  return `${file}:${line}:${column}: ${path === '' ? '' : `${path}: `}${message}`;
}

/** A key of a map with its value. Aliases are replaced by the nodes that they refer to. */
export interface Entry {
  readonly key: string;
  readonly keyNode: Node;
  readonly value: Node | null;
}

/** Largest file that is parsed. The limit bounds time and memory for a wrong path. */
export const MAX_FILE_BYTES = 1024 * 1024;
/** Maximum nesting of maps and lists. No schema needs more levels. */
export const MAX_DEPTH = 32;
/** Maximum number of aliases in one file. Nested aliases would otherwise expand exponentially. */
export const MAX_ALIASES = 100;
/** Syntax problems shown per document. One missing bracket causes many problems. */
const MAX_SYNTAX_PROBLEMS = 5;
/** Problems listed per file: more than a user reads. */
const MAX_PROBLEMS = 100;

/**
 * A YAML or JSON file that is being read. Finds the position of each node, resolves aliases within
 * bounds, and collects all problems instead of stopping at the first.
 */
export class YamlReader {
  /** The problems target so far. */
  readonly problems: Problem[] = [];
  /** The documents of the file; empty when the file cannot be parsed. */
  readonly documents: readonly Document.Parsed[];
  private readonly lines = new LineCounter();
  private aliasCount = 0;

  /** @param file - File name for messages. */
  constructor(
    readonly file: string,
    bytes: Uint8Array,
  ) {
    this.documents = this.parse(bytes);
  }

  /** Adds a problem at `node`, or at the start of the file without a node. */
  report(node: Node | null | undefined, path: string, message: string): void {
    this.reportAt(node?.range?.[0] ?? 0, path, message);
  }

  /**
   * Returns the entries of a map with string keys; reports a problem and returns undefined for any
   * other node. Other keys and repeated keys are reported and left out.
   * @param anchor - Node that gives the line number when `node` is absent.
   * @param depth - Number of merge keys that led to this map.
   */
  readEntries(
    document: Document.Parsed,
    node: Node | null,
    anchor: Node | null,
    path: string,
    depth = 0,
  ): readonly Entry[] | undefined {
    if (!isMap(node)) {
      this.report(node ?? anchor, path, `expected a map, got ${describeNode(node)}`);
      return undefined;
    }
    const entries: Entry[] = [];
    const merged: Entry[] = [];
    const seen = new Set<string>();
    for (const pair of node.items) {
      const keyNode = this.resolveAlias(document, pair.key as Node | null);
      if (isMergeKey(keyNode)) {
        merged.push(...this.readMerged(document, pair.value as Node | null, keyNode, path, depth));
        continue;
      }
      if (keyNode === null || !isScalar(keyNode) || typeof keyNode.value !== 'string') {
        const hint =
          isScalar(keyNode) && keyNode.source !== undefined ? `; write "${keyNode.source}"` : '';
        this.report(
          keyNode ?? node,
          path,
          `expected a string as key, got ${describeNode(keyNode)}${hint}`,
        );
        continue;
      }
      if (seen.has(keyNode.value)) {
        this.report(
          keyNode,
          path === '' ? keyNode.value : `${path}.${keyNode.value}`,
          'is given twice',
        );
        continue;
      }
      seen.add(keyNode.value);
      entries.push({
        key: keyNode.value,
        keyNode,
        value: this.resolveAlias(document, pair.value as Node | null),
      });
    }
    for (const entry of merged) {
      if (seen.has(entry.key)) continue;
      seen.add(entry.key);
      entries.push(entry);
    }
    return entries;
  }

  /** Returns the entries of the map, or of each map of the list, that a merge key (`<<`) names. */
  private readMerged(
    document: Document.Parsed,
    value: Node | null,
    anchor: Node | null,
    path: string,
    depth: number,
  ): readonly Entry[] {
    const target = this.resolveAlias(document, value);
    if (depth >= MAX_DEPTH) {
      this.report(anchor, path, `more than ${MAX_DEPTH} nested merge keys`);
      return [];
    }
    const sources = isSeq(target)
      ? target.items.map((item) => this.resolveAlias(document, item as Node | null))
      : [target];
    return sources.flatMap(
      (source) => this.readEntries(document, source, anchor, path, depth + 1) ?? [],
    );
  }

  /** Returns the items of a list; reports a problem and returns undefined for any other node. */
  readItems(
    document: Document.Parsed,
    node: Node | null,
    anchor: Node | null,
    path: string,
  ): readonly (Node | null)[] | undefined {
    if (!isSeq(node)) {
      this.report(node ?? anchor, path, `expected a list, got ${describeNode(node)}`);
      return undefined;
    }
    return node.items.map((item) => this.resolveAlias(document, item as Node | null));
  }

  /** Returns a string; reports a problem and returns undefined for any other node. */
  readText(node: Node | null, anchor: Node | null, path: string): string | undefined {
    if (isScalar(node) && typeof node.value === 'string') return node.value;
    const source = isScalar(node) && node.value !== null ? node.source : undefined;
    this.report(
      node ?? anchor,
      path,
      `expected a string, got ${describeNode(node)}${source === undefined ? '' : `; write "${source}"`}`,
    );
    return undefined;
  }

  /** Reports an unknown key with a similar known key, or else with all known keys. */
  reportUnknownKey(entry: Entry, path: string, known: Iterable<string>): void {
    const parent = path.slice(0, -entry.key.length - 1).replaceAll(/\[[^\]]*\]/g, '');
    const help = `"cloudlessctl explain ${parent}" lists the keys`;
    this.report(entry.keyNode, path, `unknown key${suggestKnown(entry.key, known, help)}`);
  }

  /**
   * Returns the node that an alias refers to, and any other node unchanged. Returns null for an
   * absent node, an undefined alias, and every alias after the first {@link MAX_ALIASES}.
   */
  resolveAlias(document: Document.Parsed, node: Node | null | undefined): Node | null {
    if (node === null || node === undefined) return null;
    if (!isAlias(node)) return node;
    this.aliasCount += 1;
    if (this.aliasCount > MAX_ALIASES) {
      if (this.aliasCount === MAX_ALIASES + 1)
        this.report(node, '', `more than ${MAX_ALIASES} aliases`);
      return null;
    }
    const target = node.resolve(document);
    if (target === undefined) this.report(node, '', `the alias *${node.source} is not defined`);
    return (target as Node | undefined) ?? null;
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
    if (this.file.endsWith('.json') && !this.isJson(text)) return [];
    try {
      const documents = parseAllDocuments(text, {
        version: '1.2',
        schema: 'core',
        uniqueKeys: false, // `readEntries` reports duplicate keys with their path
        intAsBigInt: true,
        prettyErrors: false,
        logLevel: 'silent',
        lineCounter: this.lines,
      });
      const parsed = 'empty' in documents ? [] : documents;
      for (const document of parsed) {
        const syntaxProblems = [...document.errors, ...document.warnings];
        if (syntaxProblems.some(({ message }) => message.startsWith('Maximum call stack')))
          throw new RangeError('too deep');
        for (const { pos, message } of syntaxProblems.slice(0, MAX_SYNTAX_PROBLEMS))
          this.reportAt(pos[0], '', getFirstLine(message));
      }
      return parsed;
    } catch (reason) {
      // The parser is recursive and overflows the stack for deeply nested input.
      if (!(reason instanceof RangeError)) throw reason;
      this.reportAt(0, '', `more than ${MAX_DEPTH} nested maps and lists`);
      return [];
    }
  }

  /** Reports the first place where a text is not JSON, although its file name says so. */
  private isJson(text: string): boolean {
    try {
      JSON.parse(text);
      return true;
    } catch (reason) {
      const message = reason instanceof Error ? reason.message : String(reason);
      const offset = Number(/ at position (\d+)/.exec(message)?.[1] ?? 0);
      this.lines.addNewLine(0);
      for (let index = text.indexOf('\n'); index >= 0; index = text.indexOf('\n', index + 1))
        this.lines.addNewLine(index + 1);
      this.reportAt(
        offset,
        '',
        `not JSON: ${message.replace(/ (?:in JSON )?at position.*$/s, '')}`,
      );
      return false;
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

/** Describes a node for messages: `the string "abc"`, `the number 3`, `nothing`. */
export function describeNode(node: Node | null): string {
  if (isMap(node)) return 'a map';
  if (isSeq(node)) return 'a list';
  if (!isScalar(node) || node.value === null) return 'nothing';
  if (typeof node.value === 'string') return `the string ${quoteText(node.value)}`;
  if (typeof node.value === 'boolean') return String(node.value);
  return `the number ${node.source ?? String(node.value)}`;
}

/** Returns true for the key `<<` without quotes, which inserts the entries of other maps. */
function isMergeKey(node: Node | null): node is Scalar {
  return isScalar(node) && node.value === '<<' && node.type === 'PLAIN';
}

function getFirstLine(message: string): string {
  return message.split('\n', 1)[0] ?? message;
}
