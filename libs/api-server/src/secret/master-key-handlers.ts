import type {
  GetMasterKeyInfoRequest,
  GetMasterKeyInfoResponse,
  RotateMasterKeyRequest,
  RotateMasterKeyResponse,
} from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import type { AuditEntry } from '../audit/audit-log.js';
import type { SecretHandlersDeps } from './secret-handlers.js';

/** Handlers of the calls of SecretsService about master keys. */
export class MasterKeyHandlers {
  constructor(protected readonly deps: SecretHandlersDeps) {}

  rotateMasterKey(
    _request: RotateMasterKeyRequest,
    _entry: AuditEntry,
  ): Promise<RotateMasterKeyResponse> {
    throw new CloudlessError('unimplemented', 'RotateMasterKey is not implemented');
  }

  getMasterKeyInfo(_request: GetMasterKeyInfoRequest): Promise<GetMasterKeyInfoResponse> {
    throw new CloudlessError('unimplemented', 'GetMasterKeyInfo is not implemented');
  }
}
