import { CloudlessError, type CloudlessErrorOptions, type ErrorReason } from '@cloudless/base';
import type { AccessTokenRefusal } from '../secret/access-token.js';

/**
 * Why the credentials of a call were refused: for operators, in audit records and as the label of a
 * metric. The client learns only what the message of the error says.
 */
export type RefusalCause =
  | 'no credentials'
  | 'empty token'
  | 'malformed token'
  | 'unknown token'
  | 'tampered token'
  | 'revoked token'
  | 'expired token'
  | 'used up token'
  | 'token of another authority'
  | 'token for other node ids'
  | 'token for other networks'
  | 'token of a deleted user'
  | 'token beside a certificate'
  | 'invalid certificate'
  | 'certificate not yet valid'
  | 'expired certificate'
  | 'revoked certificate'
  | 'certificate of a removed node'
  | 'certificate of a deleted user'
  | 'certificate of a deleted workload'
  | 'banned node'
  | 'forwarded by no coordinator'
  | 'missing role'
  | AccessTokenRefusal;

/** Facts about a refused credential for the audit record. */
export interface RefusedCredential {
  /** Name of the principal that the credential was made for. */
  readonly principal?: string;
  readonly credentialId?: string;
}

/** The error of a call whose credentials were refused. */
export class RefusedCallError extends CloudlessError {
  constructor(
    readonly refusalCause: RefusalCause,
    reason: ErrorReason,
    message: string,
    readonly refused: RefusedCredential = {},
    options: CloudlessErrorOptions = {},
  ) {
    super(reason, message, options);
  }
}
