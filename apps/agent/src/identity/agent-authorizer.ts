import { create } from '@bufbuild/protobuf';
import { CloudlessError, errorMessageOf, type Clock } from '@cloudless/base';
import {
  AgentService,
  AuthorizeAgentCallRequestSchema,
  type AuthorizeAgentCallRequest,
  type AuthorizeAgentCallResponse,
} from '@cloudless/api';
import type { NodeIdentityKeeper } from '@cloudless/agent-core';
import { formatSpiffeId, type Principal } from '@cloudless/identity';
import { checkCall, getAccessRule } from '@cloudless/identity/authorization';
import { PeerVerifier, type PeerIdentity } from '@cloudless/identity/verify';
import type { AuthorizeCall, Caller, ClientConnection } from '@cloudless/rpc-node/server';
import { CallDecisions } from './call-decisions.js';
import { requireNodeIdentity } from './node-identity.js';

type CallCredentials = Parameters<AuthorizeCall>[0];

export interface AgentAuthorizerOptions {
  readonly nodeId: string;
  readonly keeper: NodeIdentityKeeper;
  readonly clock: Clock;
  /**
   * The AuthorizeAgentCall call.
   * @throws when no coordinator can be asked.
   */
  readonly ask: (request: AuthorizeAgentCallRequest) => Promise<AuthorizeAgentCallResponse>;
}

/**
 * Decides who may call the servers of this agent. The agent verifies certificates itself, and asks a
 * coordinator about the roles of users. Whatever cannot be decided is refused.
 */
export class AgentAuthorizer {
  private readonly decisions: CallDecisions;
  private verifier: { readonly bundlePem: string; readonly verifier: PeerVerifier } | undefined;

  constructor(private readonly options: AgentAuthorizerOptions) {
    this.decisions = new CallDecisions(options.clock, (request, running) =>
      this.askCoordinator({ ...request, running }),
    );
  }

  /**
   * Identifies the caller of an RPC, and decides about every caller but users of AgentService, about
   * whom {@link requireAccess} decides when the request is known.
   * @throws kind `unauthenticated` or `denied`.
   */
  authorize({ method, connection, header }: CallCredentials): Caller {
    const caller = this.identify(connection, header);
    const { principal } = caller;
    if (principal.kind === 'user' && method.parent.typeName === AgentService.typeName)
      return caller;
    const decision = checkCall(getAccessRule(method), principal);
    if (decision.allowed) return caller;
    throw new CloudlessError(decision.code, decision.message);
  }

  /**
   * Decides who may read the metrics: coordinators, and users that may list the statistics of all
   * containers of this node.
   * @throws as {@link authorize} and {@link requireAccess}.
   */
  async authorizePage(connection: ClientConnection | undefined, header: Headers): Promise<void> {
    const method = AgentService.method.listContainerStats;
    const caller = this.authorize({ method, connection, header });
    await this.requireAccess(caller, method.name, '');
  }

  /**
   * Decides whether a caller may make a call that is about a replica of this node.
   * @param rpc - Name of the RPC: `ExecCommand`.
   * @param target - Id of the replica; empty: the call is about the node.
   * @throws kind `denied` when the caller may not, `unavailable` when no coordinator can be asked.
   */
  async requireAccess(caller: Caller | undefined, rpc: string, target: string): Promise<void> {
    if (!(caller instanceof CertificateCaller))
      throw new CloudlessError('denied', 'the caller of this call is not known');
    if (caller.principal.kind !== 'user') return; // decided by authorize
    const request = create(AuthorizeAgentCallRequestSchema, {
      nodeId: this.options.nodeId,
      certificateChain: [...caller.chainDer],
      rpc,
      target,
    });
    const key = `${caller.serial} ${rpc} ${target}`;
    caller.addCheck(await this.decisions.require(key, request, { shared: !isPrivileged(rpc) }));
  }

  /** @throws kind `unauthenticated` when the credentials are not valid. */
  private identify(connection: ClientConnection | undefined, header: Headers): CertificateCaller {
    const connectionId = connection?.id ?? '';
    if (header.has('authorization'))
      throw new CloudlessError(
        'unauthenticated',
        'agents accept no bearer tokens, because a machine of the cluster must not see the tokens of users; ' +
          'call with a client certificate (cloudlessctl login), or call a coordinator',
      );
    const chainDer = connection?.peer?.chainDer;
    if (chainDer === undefined)
      return new CertificateCaller(ANONYMOUS, connectionId, [], '', () => undefined);
    const verify = (): PeerIdentity => this.verify(chainDer);
    try {
      const identity = verify();
      return new CertificateCaller(
        toPrincipal(identity),
        connectionId,
        chainDer,
        identity.serial,
        verify,
      );
    } catch (reason) {
      connection?.drain(); // a later call would be refused for the same reason
      throw reason;
    }
  }

  private verify(chainDer: readonly Uint8Array[]): PeerIdentity {
    const { trustBundle, trustDomain } = requireNodeIdentity(this.options.keeper);
    if (this.verifier?.bundlePem !== trustBundle.pem)
      this.verifier = {
        bundlePem: trustBundle.pem,
        verifier: new PeerVerifier({ trustDomain, bundlePem: trustBundle.pem }),
      };
    const nowMs = this.options.clock.wallTime();
    return this.verifier.verifier.verify(chainDer, nowMs, { usage: 'client' });
  }

  private async askCoordinator(
    request: AuthorizeAgentCallRequest,
  ): Promise<AuthorizeAgentCallResponse> {
    try {
      return await this.options.ask(request);
    } catch (cause) {
      throw new CloudlessError(
        'unavailable',
        `node ${this.options.nodeId} cannot ask a coordinator whether this call is allowed: ${errorMessageOf(cause)}`,
        { cause },
      );
    }
  }
}

/** True for calls that the coordinator writes into its audit log, each by itself. */
function isPrivileged(rpc: string): boolean {
  const method = AgentService.methods.find(({ name }) => name === rpc);
  return method === undefined || getAccessRule(method)?.user?.role !== 'viewer';
}

const ANONYMOUS: Principal = { kind: 'unauthenticated', name: 'unauthenticated' };

/** A caller with its certificate, which is verified again while the call is open. */
class CertificateCaller implements Caller {
  private readonly checks: (() => unknown)[];

  constructor(
    readonly principal: Principal,
    readonly connectionId: string,
    readonly chainDer: readonly Uint8Array[],
    readonly serial: string,
    verify: () => unknown,
  ) {
    this.checks = [verify];
  }

  addCheck(check: () => void): void {
    this.checks.push(check);
  }

  check(): void {
    for (const check of this.checks) check();
  }
}

function toPrincipal({ id }: PeerIdentity): Principal {
  const name = `${id.kind}/${id.id}`;
  switch (id.kind) {
    case 'node':
      return { kind: 'node', name, nodeId: id.id };
    case 'user':
      // The coordinator knows the roles.
      return { kind: 'user', name, userName: id.id, grants: [] };
    case 'controller':
    case 'workload':
    case 'service':
      return { kind: id.kind, name };
    default:
      throw new CloudlessError('CERTIFICATE_INVALID', `${formatSpiffeId(id)} is of no known kind`);
  }
}
