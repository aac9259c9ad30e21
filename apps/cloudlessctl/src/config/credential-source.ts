/** Where a command finds the credential of its calls. */
export type CredentialSource =
  /** The identity that `cloudlessctl login` has stored in a directory. */
  | { readonly kind: 'identity'; readonly directory: string }
  /** A file with a bearer token; `-` is standard input. */
  | { readonly kind: 'tokenFile'; readonly path: string; readonly origin: string }
  /** A bearer token, of `CLOUDLESS_TOKEN`. */
  | { readonly kind: 'tokenText'; readonly text: string; readonly origin: string };

/** The credential of a command, and the roots to trust. */
export interface Credentials {
  /** Absent: the user has not logged in. */
  readonly source?: CredentialSource;
  /**
   * File with the root certificates to trust in PEM. Absent: the identity or the token names the
   * root.
   */
  readonly caFile?: string;
}
