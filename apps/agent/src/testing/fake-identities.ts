import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { ConnectRouter } from '@connectrpc/connect';
import { CloudlessError } from '@cloudless/base';
import { IdentityService, type EnrollNodeRequest } from '@cloudless/api';
import type { Principal } from '@cloudless/identity';
import { PeerVerifier } from '@cloudless/identity/verify';
import { TestAuthority, type TestCredential } from '@cloudless/identity/testing';
import { readCsr } from '@cloudless/identity/x509';
import type { AuthorizeCall, ServerTls } from '@cloudless/rpc-node/server';

const SERVER_ID = 'spiffe://cloudless/controller/coordinator';

/** The identities of a fake coordinator: issues certificates, and accepts those it has issued. */
export class FakeIdentities {
  /** Validity of the certificates of nodes. */
  lifetimeMs = 60 * 60_000;
  /** Difference of the clock of the authority to the clock of this machine. */
  clockOffsetMs = 0;
  /** While true, enrolments and renewals are done but the connection ends without a reply. */
  losesReplies = false;
  /** While set, calls of nodes are refused with this error. */
  refusal: CloudlessError | undefined;
  /** Users that may call agents. */
  readonly allowedUsers = new Set<string>();
  /** Public keys with which machines joined: each is one use of the token. */
  readonly joinedKeys: string[] = [];
  /** Tokens of all enrolments. */
  readonly tokens: string[] = [];
  enrolments = 0;
  renewals = 0;
  private bundleGeneration = 1n;

  private constructor(
    readonly authority: TestAuthority,
    private readonly credential: TestCredential,
  ) {}

  static async create(): Promise<FakeIdentities> {
    const authority = await TestAuthority.create({ nowMs: Date.now() });
    return new FakeIdentities(authority, await authority.issue('controller', 'coordinator'));
  }

  /** The token that machines may join with. */
  get token(): string {
    return `cl1.abcdefghij12.${'s'.repeat(42)}A.${this.authority.authority.rootSha256}`;
  }

  get tls(): ServerTls {
    return { getContext: () => this.credential, onContextChange: () => () => undefined };
  }

  readonly authorize: AuthorizeCall = ({ method, connection }) => {
    const chain = connection?.peer?.chainDer;
    const connectionId = connection?.id ?? '';
    if (chain === undefined) {
      if (method.name !== 'EnrollNode') throw new CloudlessError('unauthenticated', 'no identity');
      const principal: Principal = { kind: 'unauthenticated', name: 'unauthenticated' };
      return { principal, connectionId, check: () => undefined };
    }
    const verifier = new PeerVerifier({
      trustDomain: 'cloudless',
      bundlePem: this.authority.bundlePem,
    });
    const isRenewal = method.name === 'RenewNodeCertificate';
    const { id } = verifier.verify(chain, Date.now(), {
      usage: 'client',
      kinds: ['node'],
      expiredGraceMs: isRenewal ? 30 * 24 * 60 * 60_000 : 0,
    });
    if (this.refusal !== undefined) throw this.refusal;
    const principal: Principal = { kind: 'node', name: `node/${id.id}`, nodeId: id.id };
    return { principal, connectionId, check: () => undefined };
  };

  register(router: ConnectRouter): void {
    router.service(IdentityService, {
      renewNodeCertificate: (request) => {
        this.renewals += 1;
        return this.issue(request.nodeId, request.csr);
      },
      authorizeAgentCall: ({ certificateChain, rpc }) => {
        const verifier = new PeerVerifier({
          trustDomain: 'cloudless',
          bundlePem: this.authority.bundlePem,
        });
        const { id } = verifier.verify(certificateChain, Date.now(), { usage: 'client' });
        const allowed = this.allowedUsers.has(id.id);
        const reason = allowed ? '' : `user/${id.id} may not call ${rpc}`;
        return { allowed, principal: `user/${id.id}`, reason };
      },
    });
  }

  async enroll({ nodeId, csr, token }: EnrollNodeRequest) {
    this.enrolments += 1;
    this.tokens.push(token);
    if (token !== this.token) throw new CloudlessError('INVALID_TOKEN', 'the token is not valid');
    const { publicKeySha256 } = await readCsr(csr);
    if (!this.joinedKeys.includes(publicKeySha256)) this.joinedKeys.push(publicKeySha256);
    return { certificate: await this.issue(nodeId, csr) };
  }

  private async issue(nodeId: string, csr: Uint8Array) {
    const nowMs = Date.now() + this.clockOffsetMs;
    const { publicKey } = await readCsr(csr);
    const chain = await this.authority.authority.issue({
      id: { trustDomain: 'cloudless', kind: 'node', id: nodeId },
      publicKey,
      lifetimeMs: this.lifetimeMs,
      nowMs,
      usage: 'both',
    });
    if (this.losesReplies) throw new CloudlessError('unavailable', 'the reply is lost');
    return {
      certificateChain: chain.pem,
      trustBundle: { generation: this.bundleGeneration, pem: this.authority.bundlePem },
      notBefore: timestampFromMs(chain.notBeforeMs),
      notAfter: timestampFromMs(chain.notAfterMs),
      coordinatorIds: [SERVER_ID],
      trustDomain: 'cloudless',
    };
  }
}
