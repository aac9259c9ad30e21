/**
 * Files of the identity directory. `identity.json` is the truth; `node.crt` and `ca.crt` are copies
 * for people and tools. `request.json` has the key of a certificate that is being requested.
 */
export type IdentityFileName =
  'identity.json' | 'request.json' | 'node.key' | 'node.crt' | 'ca.crt';

/**
 * The identity directory of an agent. Only the user of the agent can read its files. A change is on
 * disk when its promise resolves; after a crash the file has its old or its new content.
 */
export interface IdentityFiles {
  /**
   * Reads a file.
   * @returns Undefined when the file does not exist.
   * @throws kind `precondition` when other users can read the file.
   */
  read(name: IdentityFileName): Promise<string | undefined>;
  /** Creates or replaces a file. */
  write(name: IdentityFileName, content: string): Promise<void>;
  /** Removes a file; has no effect when the file does not exist. */
  remove(name: IdentityFileName): Promise<void>;
}
