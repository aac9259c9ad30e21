import { OpenSecretError } from '../io/io.js';
import type { Files } from '../io/io.js';

/** Files that exist only in the memory of a test. */
export class MemoryFiles implements Files {
  /**
   * @param files - Content of each file by path; changed in place.
   * @param modes - Mode of files that others can read. Default: 0600.
   */
  constructor(
    private readonly files: Record<string, string>,
    private readonly modes: Readonly<Record<string, number>> = {},
  ) {}

  async read(path: string): Promise<Uint8Array> {
    return new TextEncoder().encode(this.require(path));
  }

  async list(path: string): Promise<readonly string[] | undefined> {
    const inside = this.listBelow(path);
    if (this.files[path] !== undefined) return undefined;
    if (inside.length === 0) throw createFileError('ENOENT', path);
    return inside.map((file) => file.slice(path.length + 1));
  }

  async write(path: string, text: string): Promise<void> {
    this.files[path] = text;
  }

  async exists(path: string): Promise<boolean> {
    return this.files[path] !== undefined || this.listBelow(path).length > 0;
  }

  async readSecret(path: string): Promise<Uint8Array> {
    const mode = this.modes[path];
    if (mode !== undefined) throw new OpenSecretError(path, mode);
    return this.read(path);
  }

  async createSecret(path: string, text: string): Promise<void> {
    if (this.files[path] !== undefined) throw createFileError('EEXIST', path);
    this.files[path] = text;
  }

  async replaceSecret(path: string, content: string | Uint8Array): Promise<void> {
    this.files[path] = typeof content === 'string' ? content : new TextDecoder().decode(content);
  }

  async replaceSecrets(contents: ReadonlyMap<string, Uint8Array>): Promise<void> {
    for (const [path, content] of contents) await this.replaceSecret(path, content);
  }

  async lock(path: string): Promise<(() => Promise<void>) | undefined> {
    if (this.files[path] !== undefined) return undefined;
    this.files[path] = '';
    return () => this.remove(path);
  }

  async remove(path: string): Promise<void> {
    for (const file of [path, ...this.listBelow(path)]) delete this.files[file];
  }

  private listBelow(path: string): readonly string[] {
    return Object.keys(this.files).filter((file) => file.startsWith(`${path}/`));
  }

  private require(path: string): string {
    const text = this.files[path];
    if (text !== undefined) return text;
    throw createFileError(this.listBelow(path).length > 0 ? 'EISDIR' : 'ENOENT', path);
  }
}

function createFileError(code: string, path: string): Error {
  return Object.assign(new Error(`${code}: ${path}`), { code });
}
