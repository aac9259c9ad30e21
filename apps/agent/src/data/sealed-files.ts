import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { chmod, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { makeDirectory } from '@cloudless/app-kit';
import { syncFolder } from './sync-folder.js';

const KEY_BYTES = 32;
/** As NIST SP 800-38D recommends for AES-GCM. A random nonce is used for each encryption. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const ALGORITHM = 'aes-256-gcm';
const DRAFT = '.draft';

/** An encrypted text, each part in base64. */
export interface SealedText {
  readonly nonce: string;
  readonly tag: string;
  readonly data: string;
}

/**
 * Private files of one folder, written whole or not at all, and the key of this node that encrypts
 * what they contain (AES-256-GCM). A backup or a leaked file of the folder shows no value; whoever
 * can read the key file and the folder, as root can, can read the values.
 */
export class SealedFiles {
  private key: Promise<Buffer> | undefined;

  /**
   * @param folder - Created by the first {@link write}, mode 0700.
   * @param keyFile - Created by the first use of the key, mode 0600; its directory must exist.
   */
  constructor(
    private readonly folder: string,
    private readonly keyFile: string,
  ) {}

  /**
   * Encrypts a text.
   * @param context - Bound to the result: only the same context decrypts it.
   * @throws as `node:fs` when the key file can be neither read nor created.
   */
  async seal(text: string, context: string): Promise<SealedText> {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(ALGORITHM, await this.getKey(), nonce);
    cipher.setAAD(Buffer.from(context));
    const data = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()]);
    return {
      nonce: nonce.toString('base64'),
      tag: cipher.getAuthTag().toString('base64'),
      data: data.toString('base64'),
    };
  }

  /**
   * Decrypts the result of {@link seal}.
   * @throws when the text was changed, or the key or the context is another.
   */
  async unseal(sealed: SealedText, context: string): Promise<string> {
    const [nonce, tag, data] = [sealed.nonce, sealed.tag, sealed.data].map((text) =>
      Buffer.from(text, 'base64'),
    ) as [Buffer, Buffer, Buffer];
    const options = { authTagLength: TAG_BYTES };
    const decipher = createDecipheriv(ALGORITHM, await this.getKey(), nonce, options)
      .setAAD(Buffer.from(context))
      .setAuthTag(tag);
    return Buffer.concat([decipher.update(data), decipher.final()]).toString();
  }

  /** @throws as `node:fs`, with the code ENOENT when there is no such file. */
  read(name: string): Promise<string> {
    return readFile(join(this.folder, name), 'utf8');
  }

  /** Replaces a file, flushed to disk. */
  async write(name: string, content: string): Promise<void> {
    await makeDirectory(this.folder, 0o700);
    await writePrivately(this.folder, name, content);
  }

  async remove(name: string): Promise<void> {
    await rm(join(this.folder, name), { force: true });
    await rm(join(this.folder, `${name}${DRAFT}`), { force: true });
  }

  /** Lists the files, also those whose first write did not end; none without the folder. */
  async list(): Promise<readonly string[]> {
    const names = await readdir(this.folder).catch(() => []);
    return names.map((name) => (name.endsWith(DRAFT) ? name.slice(0, -DRAFT.length) : name));
  }

  /** Creates the key file unless there is one. */
  async prepareKey(): Promise<void> {
    await this.getKey();
  }

  private getKey(): Promise<Buffer> {
    this.key ??= this.openKey();
    this.key.catch(() => (this.key = undefined));
    return this.key;
  }

  /** Reads the key, or creates one. Files under a lost key are worthless, and fetched again. */
  private async openKey(): Promise<Buffer> {
    const stored = await readFile(this.keyFile).catch(() => undefined);
    if (stored?.length === KEY_BYTES) return stored;
    const key = randomBytes(KEY_BYTES);
    await writePrivately(dirname(this.keyFile), basename(this.keyFile), key);
    return key;
  }
}

/** Writes a file that only this user can read, atomically, and flushes it to disk. */
async function writePrivately(
  folder: string,
  name: string,
  content: string | Uint8Array,
): Promise<void> {
  const draft = join(folder, `${name}${DRAFT}`);
  const file = await open(draft, 'w', 0o600);
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
  await chmod(draft, 0o600);
  await rename(draft, join(folder, name));
  await syncFolder(folder);
}
