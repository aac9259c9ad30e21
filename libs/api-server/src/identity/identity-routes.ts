import type { ServiceImpl } from '@connectrpc/connect';
import { IdentityService } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import type { CallRoutes } from '../routes/call-routes.js';
import type { ReadRoutes } from '../routes/read-routes.js';
import type { MutationDeps } from '../mutation/idempotent-mutation.js';
import type { ApiServerDeps } from '../ports.js';
import { recordRefusedCalls } from '../access/refused-calls.js';
import { CertificateAuthorityHandlers, NO_IDENTITIES } from './certificate-authority-handlers.js';
import { JoinTokenHandlers } from './join-token-handlers.js';
import { NodeBanHandlers } from './node-ban-handlers.js';
import { NodeIdentityHandlers } from './node-identity-handlers.js';

type Identity = ServiceImpl<typeof IdentityService>;
const calls = IdentityService.method;

/** Creates the implementation of IdentityService; in a cluster without TLS all calls are refused. */
export function createIdentityRoutes(
  routes: CallRoutes,
  deps: ApiServerDeps & MutationDeps,
  reads: ReadRoutes['identity'],
): Identity {
  const { identity } = deps;
  if (identity === undefined) return createRefusingRoutes();
  const tokens = new JoinTokenHandlers(deps, identity);
  const bans = new NodeBanHandlers(deps);
  const authority = new CertificateAuthorityHandlers(deps, identity);
  const nodes = new NodeIdentityHandlers(deps, routes.access, identity);
  return {
    createJoinToken: routes.change(calls.createJoinToken, (request, entry) =>
      tokens.createJoinToken(request, entry),
    ),
    revokeJoinToken: routes.change(
      calls.revokeJoinToken,
      (request, entry) => tokens.revokeJoinToken(request, entry),
      ({ id }) => ({ object: `join token ${id}` }),
    ),
    renewNodeCertificate: (request, context) => nodes.renewNodeCertificate(request, context),
    issueWorkloadCertificate: (request, context) =>
      nodes.issueWorkloadCertificate(request, context),
    authorizeAgentCall: (request, context) => nodes.authorizeAgentCall(request, context),
    banNode: routes.change(calls.banNode, (request, entry) => bans.banNode(request, entry)),
    unbanNode: routes.change(calls.unbanNode, (request, entry) => bans.unbanNode(request, entry)),
    ...reads,
    rotateCertificateAuthority: routes.change(calls.rotateCertificateAuthority, (request, entry) =>
      authority.rotate(request, entry),
    ),
    skipCertificateAuthorityWait: routes.change(
      calls.skipCertificateAuthorityWait,
      (_request, entry) => authority.skipWait(entry),
    ),
    fetchAuthorityKeys: routes.change(calls.fetchAuthorityKeys, (request, entry) =>
      authority.fetchKeys(request, entry),
    ),
    recordRefusedCalls: ({ calls: refused }) => recordRefusedCalls(deps.state, refused),
  };
}

function createRefusingRoutes(): Identity {
  const refuse = (): never => {
    throw new CloudlessError('NO_IDENTITIES', NO_IDENTITIES);
  };
  return Object.fromEntries(
    IdentityService.methods.map(({ localName }) => [localName, refuse]),
  ) as unknown as Identity;
}
