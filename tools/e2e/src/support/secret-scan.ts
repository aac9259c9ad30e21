import { createPrivateKey } from 'node:crypto';
import { lstatSync, readFileSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { gunzipSync } from 'node:zlib';

/** A place where a secret was found. Contains no part of the secret. */
export interface SecretFinding {
  /** Name of the secret, such as the path of its file. */
  readonly secret: string;
  /** How the secret was written: `text`, `hex` and so on. */
  readonly form: string;
  /** Where the secret was found, such as the path of a file. */
  readonly where: string;
}

interface Pattern {
  readonly secret: string;
  readonly form: string;
  readonly bytes: Buffer;
}

/** Tokens of Cloudless: prefix, id, secret, and SHA-256 of the root unless the token is of a secret. */
const TOKEN =
  /\bcl(?:u?1\.[a-z0-9]{12}\.([A-Za-z0-9_-]{43})\.[0-9a-f]{64}|s1\.[a-z0-9]{12}\.([A-Za-z0-9_-]{43}))(?![A-Za-z0-9_-])/g;
const PRIVATE_KEY = /-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]+-----END [A-Z ]*PRIVATE KEY-----/g;
/** Shortest piece of a secret that cannot be a coincidence. */
const MIN_PATTERN_BYTES = 16;

/**
 * Searches outputs of programs for secrets: keys, tokens and other values, in the forms in which
 * programs write bytes. An oracle for tests that must show that nothing leaks.
 *
 * @example
 * ```ts
 * const scan = new SecretScan();
 * scan.addSecretFile(join(identityDir, 'ca', '1', 'root.key'));
 * scan.addText('log of the agent', agent.lines.join('\n'));
 * scan.addDirectory(backupDir);
 * expect(scan.findings).toEqual([]);
 * ```
 */
export class SecretScan {
  private readonly patterns: Pattern[] = [];
  private readonly found = new Map<string, SecretFinding>();
  private byteCount = 0;

  /** Every place where a secret was found, once for each secret, form and place. */
  get findings(): readonly SecretFinding[] {
    return [...this.found.values()];
  }

  /** Names of the secrets that are searched for. */
  get secrets(): readonly string[] {
    return [...new Set(this.patterns.map(({ secret }) => secret))];
  }

  /** Number of bytes that were searched. */
  get scannedBytes(): number {
    return this.byteCount;
  }

  /**
   * Searches for the secrets in a file from now on: private keys and tokens in its text, or else
   * the whole content.
   * @throws Error when the file is empty.
   */
  addSecretFile(path: string): void {
    const content = readFileSync(path);
    if (content.length === 0) throw new Error(`${path} is empty`);
    const text = content.toString('latin1');
    const keys = text.replaceAll('\\n', '\n').match(PRIVATE_KEY) ?? [];
    for (const pem of keys) this.addPrivateKey(path, pem);
    const tokens = [...text.matchAll(TOKEN)];
    for (const [token] of tokens) this.addToken(path, token);
    if (keys.length + tokens.length === 0) this.addValue(path, content);
  }

  /**
   * Searches for the secrets in all files of a directory and below whose names match `names`.
   * Leaves out a file that is removed meanwhile, such as the request for a certificate that has
   * arrived.
   */
  addSecretFiles(directory: string, names: RegExp): void {
    for (const path of listFiles(directory))
      if (names.test(basename(path))) ifPresent(() => this.addSecretFile(path));
  }

  /** Searches for a token from now on: for the whole text and its secret part. */
  addToken(name: string, token: string): void {
    this.addPattern(name, 'token', Buffer.from(token));
    const [, ofCluster, ofSecret] = new RegExp(TOKEN.source).exec(token) ?? [];
    const secret = ofCluster ?? ofSecret;
    if (secret === undefined) throw new Error(`${name} is no token`);
    this.addValue(name, Buffer.from(secret));
    this.addValue(name, Buffer.from(secret, 'base64url'));
  }

  /** Searches for a private key in PEM from now on: for its text, its bytes and its scalar. */
  addPrivateKey(name: string, pem: string): void {
    const key = createPrivateKey(pem);
    const body = pem.split('\n').filter((line) => line !== '' && !line.startsWith('-----'));
    for (const line of body) this.addPattern(name, 'PEM', Buffer.from(line));
    const { d } = key.export({ format: 'jwk' });
    if (d !== undefined) this.addValue(name, Buffer.from(d, 'base64url'));
  }

  /** Searches for bytes from now on, also as hex, base64, base64url, and percent-encoded. */
  addValue(name: string, value: Buffer): void {
    const trimmed = value.at(-1) === 0x0a ? value.subarray(0, -1) : value;
    this.addPattern(name, 'bytes', trimmed);
    this.addPattern(name, 'hex', Buffer.from(trimmed.toString('hex')));
    this.addPattern(name, 'upper-case hex', Buffer.from(trimmed.toString('hex').toUpperCase()));
    for (const encoding of ['base64', 'base64url'] as const) {
      // In a longer text, base64 of the value depends on the position of its first byte.
      for (const shift of [0, 1, 2]) {
        const encoded = Buffer.concat([Buffer.alloc(shift), trimmed]).toString(encoding);
        const text = encoded.replace(/=+$/, '').slice(shift === 0 ? 0 : 4, -4);
        this.addPattern(name, encoding, Buffer.from(text));
      }
    }
    const uri = encodeURIComponent(trimmed.toString('latin1'));
    if (uri !== trimmed.toString('latin1')) this.addPattern(name, 'URI', Buffer.from(uri));
  }

  /** Searches bytes. Compressed content (gzip) is searched, too. */
  addBytes(where: string, content: Uint8Array): void {
    const bytes = Buffer.from(content.buffer, content.byteOffset, content.byteLength);
    this.byteCount += bytes.length;
    for (const { secret, form, bytes: pattern } of this.patterns) {
      if (!bytes.includes(pattern)) continue;
      this.found.set([secret, form, where].join('\n'), { secret, form, where });
    }
    if (bytes[0] === 0x1f && bytes[1] === 0x8b) this.addBytes(`${where} (gzip)`, gunzipSync(bytes));
  }

  /** Searches a text, such as a log, an error or the output of a command. */
  addText(where: string, text: string): void {
    this.addBytes(where, Buffer.from(text));
  }

  /**
   * Searches all files of a directory and below, and their names. Leaves out what a running
   * program renames or removes meanwhile.
   * @param isAllowed - Returns true for paths where secrets belong, which are left out.
   * @throws when the directory does not exist.
   */
  addDirectory(directory: string, isAllowed: (path: string) => boolean = () => false): void {
    lstatSync(directory); // a wrong path must not pass for an empty directory
    for (const path of listFiles(directory)) {
      if (isAllowed(path)) continue;
      this.addText(`name of ${path}`, path);
      const content = ifPresent(() => readFileSync(path));
      if (content !== undefined) this.addBytes(path, content);
    }
  }

  /**
   * Searches the arguments and the environment of processes.
   * @param isAllowed - Returns true for environments where secrets belong, which are left out.
   */
  addProcesses(pids: readonly number[], isAllowed: (pid: number) => boolean = () => false): void {
    for (const pid of pids) {
      this.addProcFile(pid, 'cmdline');
      if (!isAllowed(pid)) this.addProcFile(pid, 'environ');
    }
  }

  private addProcFile(pid: number, name: 'cmdline' | 'environ'): void {
    let content: Buffer;
    try {
      content = readFileSync(`/proc/${pid}/${name}`);
    } catch {
      return; // the process has ended
    }
    this.addBytes(`${name} of process ${pid}`, content);
  }

  private addPattern(secret: string, form: string, bytes: Buffer): void {
    if (bytes.length >= MIN_PATTERN_BYTES) this.patterns.push({ secret, form, bytes });
  }
}

/** Lists a process and all processes below it. */
export function listProcessTree(rootPid: number): readonly number[] {
  const childrenOf = new Map<number, number[]>();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const parent = readParent(Number(name));
    if (parent !== undefined)
      childrenOf.set(parent, [...(childrenOf.get(parent) ?? []), Number(name)]);
  }
  const tree: number[] = [];
  for (const waiting = [rootPid]; waiting.length > 0;) {
    const pid = waiting.pop();
    if (pid === undefined) break;
    tree.push(pid);
    waiting.push(...(childrenOf.get(pid) ?? []));
  }
  return tree;
}

function readParent(pid: number): number | undefined {
  try {
    // The name of the program, in parentheses, may contain spaces.
    const fields = readFileSync(`/proc/${pid}/stat`, 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ');
    return Number(fields[1]);
  } catch {
    return undefined;
  }
}

function listFiles(directory: string): readonly string[] {
  return (ifPresent(() => readdirSync(directory)) ?? []).flatMap((name) => {
    const path = join(directory, name);
    const status = ifPresent(() => lstatSync(path));
    if (status?.isDirectory() === true) return listFiles(path);
    return status?.isFile() === true ? [path] : [];
  });
}

/** Returns the result of `read`; undefined when the file or directory does not exist any more. */
function ifPresent<Result>(read: () => Result): Result | undefined {
  try {
    return read();
  } catch (reason) {
    if ((reason as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw reason;
  }
}
