import type {
  GenerateAccessTokenRequest,
  GenerateAccessTokenResponse,
  GetSecretAuditLogRequest,
  GetSecretAuditLogResponse,
  RevokeAccessTokenRequest,
  RevokeAccessTokenResponse,
  ValidateAccessTokenRequest,
  ValidateAccessTokenResponse,
} from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import type { AuditEntry } from '../audit/audit-log.js';
import type { SecretHandlersDeps } from './secret-handlers.js';

/** Handlers of the calls of SecretsService about access tokens. */
export class AccessTokenHandlers {
  constructor(protected readonly deps: SecretHandlersDeps) {}

  generateAccessToken(
    _request: GenerateAccessTokenRequest,
    _entry: AuditEntry,
  ): Promise<GenerateAccessTokenResponse> {
    throw new CloudlessError('unimplemented', 'GenerateAccessToken is not implemented');
  }

  revokeAccessToken(
    _request: RevokeAccessTokenRequest,
    _entry: AuditEntry,
  ): Promise<RevokeAccessTokenResponse> {
    throw new CloudlessError('unimplemented', 'RevokeAccessToken is not implemented');
  }

  validateAccessToken(_request: ValidateAccessTokenRequest): Promise<ValidateAccessTokenResponse> {
    throw new CloudlessError('unimplemented', 'ValidateAccessToken is not implemented');
  }

  getSecretAuditLog(_request: GetSecretAuditLogRequest): Promise<GetSecretAuditLogResponse> {
    throw new CloudlessError('unimplemented', 'GetSecretAuditLog is not implemented');
  }
}
