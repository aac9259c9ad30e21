import type { HandlerContext, ServiceImpl } from '@connectrpc/connect';
import { SecretsService, resolveNamespace } from '@cloudless/api';
import type { CallAccess } from '../access/call-access.js';
import type { AuditSubject } from '../audit/audit-event.js';
import type { AuditEntry } from '../audit/audit-log.js';
import type { AccessTokenHandlers } from '../secret/access-token-handlers.js';
import type { AccessTokenUses } from '../secret/access-token-use.js';
import type { MasterKeyHandlers } from '../secret/master-key-handlers.js';
import type { SecretHandlers } from '../secret/secret-handlers.js';
import {
  describeName,
  isPossibleName,
  toSecretKey,
  type SecretName,
} from '../secret/secret-lookup.js';
import type { SecretReads } from '../secret/secret-reads.js';
import { readWorkload, requireWorkloadRole, type CallRoutes } from './call-routes.js';

const calls = SecretsService.method;

export interface SecretRouteHandlers {
  readonly secrets: SecretHandlers;
  readonly accessTokens: AccessTokenHandlers;
  readonly uses: AccessTokenUses;
  readonly masterKeys: MasterKeyHandlers;
  readonly reads: SecretReads;
}

/** Creates the implementation of SecretsService. */
export function createSecretRoutes(
  routes: CallRoutes,
  { secrets, accessTokens, uses, masterKeys, reads }: SecretRouteHandlers,
): ServiceImpl<typeof SecretsService> {
  const { access, audit } = routes;
  const getSecret = audit.wrapRead(
    calls.getSecret,
    readWorkload(access, calls.getSecret, (request) => reads.getSecret(request)),
    describeSecret,
  );
  // No role is needed: the access token is the credential.
  const getValues = routes.change(
    calls.getSecret,
    (request, entry) => uses.readValues(request, entry),
    describeSecret,
  );
  return {
    createSecret: routes.change(
      calls.createSecret,
      inNamespace(access, calls.createSecret, (request, entry) =>
        secrets.createSecret(request, entry),
      ),
      describeSecret,
    ),
    updateSecret: routes.change(
      calls.updateSecret,
      inNamespace(access, calls.updateSecret, (request, entry) =>
        secrets.updateSecret(request, entry),
      ),
      describeSecret,
    ),
    deleteSecret: routes.change(
      calls.deleteSecret,
      inNamespace(access, calls.deleteSecret, (request, entry) =>
        secrets.deleteSecret(request, entry),
      ),
      describeSecret,
    ),
    generateAccessToken: routes.change(
      calls.generateAccessToken,
      inNamespace(access, calls.generateAccessToken, (request, entry) =>
        accessTokens.generateAccessToken(request, entry),
      ),
      describeSecret,
    ),
    revokeAccessToken: routes.change(
      calls.revokeAccessToken,
      inNamespace(access, calls.revokeAccessToken, (request, entry) =>
        accessTokens.revokeAccessToken(request, entry),
      ),
      describeSecret,
    ),
    // The text of the token is the credential.
    validateAccessToken: routes.change(
      calls.validateAccessToken,
      (request, entry) => accessTokens.validateAccessToken(request, entry),
      describeSecret,
    ),
    getSecretAuditLog: audit.wrapRead(
      calls.getSecretAuditLog,
      readWorkload(access, calls.getSecretAuditLog, (request) =>
        accessTokens.getSecretAuditLog(request),
      ),
      describeSecret,
    ),
    rotateMasterKey: routes.change(calls.rotateMasterKey, (request, entry, { signal }) =>
      masterKeys.rotateMasterKey(request, entry, signal),
    ),
    getMasterKeyInfo: () => masterKeys.getMasterKeyInfo(),
    getSecret: (request, context) =>
      (request.accessToken === '' ? getSecret : getValues)(request, context),
    ...createSecretReads(reads),
  };
}

/** Creates the reads of SecretsService that every coordinator serves. */
export function createSecretReads(reads: SecretReads) {
  return {
    listSecrets: (request, context) => reads.listSecrets(request, context),
  } satisfies Partial<ServiceImpl<typeof SecretsService>>;
}

/** Checks the role in the namespace of the secret before a call. */
function inNamespace<Request extends SecretName, Response>(
  access: CallAccess,
  method: Parameters<CallAccess['requireNamespace']>[1],
  handler: (request: Request, entry: AuditEntry, context: HandlerContext) => Response,
): (request: Request, entry: AuditEntry, context: HandlerContext) => Response {
  return (request, entry, context) => {
    requireWorkloadRole(access, method, request, context);
    return handler(request, entry, context);
  };
}

function describeSecret(request: SecretName): AuditSubject {
  if (!isPossibleName(request)) return { object: `secret ${describeName(request)}` };
  const key = toSecretKey(request);
  return { namespace: resolveNamespace(request), object: `secret ${key}`, secrets: [key] };
}
