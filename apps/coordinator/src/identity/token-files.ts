import { join } from 'node:path';
import { errorFields, errorKindOf, type Log } from '@cloudless/base';
import type { ClusterIdentities } from '@cloudless/controllers';
import { formatToken, parseToken } from '@cloudless/identity';
import { readSecretFile, replaceSecretFile } from '@cloudless/identity/files';

/** File with a token of the user `admin`. */
export const ADMIN_CREDENTIAL_FILE = 'admin.credential';
/** File with the complete command by which machines join. */
export const JOIN_COMMAND_FILE = 'join-command';
const FILES = [ADMIN_CREDENTIAL_FILE, JOIN_COMMAND_FILE];
/** A token between white space or at an end of the file. */
const TOKEN_TEXT = /(?<=^|\s)clu?1\.\S+(?=\s|$)/g;

export interface TokenFilesOptions {
  readonly identities: ClusterIdentities;
  readonly log: Log;
  /** The identity directory. */
  readonly directory: string;
}

/**
 * Keeps the tokens in the files of the coordinator valid while the certificate authority changes: a
 * token names the roots that its holder accepts, so each change of the trust bundle writes the files
 * again with the same tokens and the new roots. Files that an operator has deleted stay deleted.
 */
export class TokenFiles {
  private readonly unsubscribe: () => void;
  private running: Promise<void>;

  /** Begins with an update, because a crash may have come between a change and the files. */
  constructor(private readonly options: TokenFilesOptions) {
    this.running = this.update();
    this.unsubscribe = options.identities.onChange(() => {
      this.running = this.running.then(() => this.update());
    });
  }

  /** Resolves when the files name the current roots, or could not be written. */
  settled(): Promise<void> {
    return this.running;
  }

  async close(): Promise<void> {
    this.unsubscribe();
    await this.running;
  }

  private async update(): Promise<void> {
    const { identities, directory, log } = this.options;
    const { rootSha256s } = identities.getTrustBundle();
    for (const name of FILES) {
      const file = join(directory, name);
      try {
        const before = new TextDecoder().decode(await readSecretFile(file));
        const after = nameRoots(before, rootSha256s);
        if (after === before) continue;
        await replaceSecretFile(file, after);
        log.info('file of a token names the new root certificates', { file });
      } catch (reason) {
        if (errorKindOf(reason) === 'notFound') continue;
        log.warn('file of a token still names the old root certificates', {
          file,
          ...errorFields(reason),
        });
      }
    }
  }
}

/** Returns a text whose tokens name the given roots. Everything else stays as it is. */
export function nameRoots(text: string, caSha256s: readonly string[]): string {
  return text.replaceAll(TOKEN_TEXT, (tokenText) => {
    const token = parseToken(tokenText);
    return token === undefined ? tokenText : formatToken({ ...token, caSha256s });
  });
}
