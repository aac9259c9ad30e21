import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { createClient, type Client, type Transport } from '@connectrpc/connect';
import type { DescService } from '@bufbuild/protobuf';
import { Role, RoleGrantSchema, UserCredential_Kind as CredentialKind } from '@cloudless/api';
import {
  CertificateAuthorityRecordSchema,
  CredentialRecordSchema,
  NodeRecordSchema,
  UserRecordSchema,
} from '@cloudless/api/store';
import { createSeededRandom } from '@cloudless/base';
import { CERTIFICATE_AUTHORITY_KEY } from '@cloudless/cluster-state';
import { createToken, hashToken, type Grant, type RoleName } from '@cloudless/identity';
import { TestAuthority, type TestCredential } from '@cloudless/identity/testing';
import { PeerVerifier, type AuthorityPems } from '@cloudless/identity/x509';
import type { CertificateVerifier, IdentityPort } from '../access/identity-port.js';
import type { ApiTestBed } from './api-test-bed.js';
import { CONNECTION_HEADER } from './scripted-agent.js';

const DAY_MS = 24 * 60 * 60 * 1_000;
const ROLES: Readonly<Record<RoleName, Role>> = {
  viewer: Role.VIEWER,
  operator: Role.OPERATOR,
  admin: Role.ADMIN,
};

/** Identities of a cluster whose authority signs whatever a test wants. */
export class TestIdentity implements IdentityPort {
  readonly trustDomain = 'cloudless';
  readonly coordinatorIds = ['spiffe://cloudless/controller/coordinator'];
  readonly coordinatorId = { trustDomain: 'cloudless', kind: 'controller', id: 'one' } as const;
  /** Keys by generation that this coordinator has. */
  readonly keys = new Map<number, AuthorityPems>();
  readonly issuingGeneration = 1;
  readonly tokenSecret = new Uint8Array(32).fill(7);
  readonly lifetimes = { nodeMs: DAY_MS, userMs: 7 * DAY_MS, workloadMs: DAY_MS };
  verifier: CertificateVerifier;
  private readonly random = createSeededRandom(3);

  private constructor(
    readonly authority: TestAuthority,
    private readonly nowMs: number,
  ) {
    this.verifier = new PeerVerifier({
      trustDomain: this.trustDomain,
      bundlePem: authority.bundlePem,
    });
  }

  /** @param nowMs - Time of all certificates, wall-clock milliseconds. */
  static async create(nowMs: number): Promise<TestIdentity> {
    return new TestIdentity(await TestAuthority.create({ nowMs }), nowMs);
  }

  getTrustBundle() {
    return {
      generation: 1n,
      pem: this.authority.bundlePem,
      rootSha256s: [this.authority.authority.rootSha256],
    };
  }

  async issue(order: Parameters<IdentityPort['issue']>[0]) {
    const chain = await this.authority.authority.issue({ ...order, nowMs: this.nowMs });
    return { ...chain, generation: 1 };
  }

  async createGeneration(): Promise<{ readonly rootPem: string }> {
    throw new Error('the test authority has one generation');
  }

  async listGenerations() {
    return { stored: [...this.keys.keys()], missing: [] };
  }

  async exportKeys(generation: number): Promise<AuthorityPems> {
    const pems = this.keys.get(generation);
    if (pems === undefined) throw new Error(`the test has no keys of generation ${generation}`);
    return pems;
  }

  onChange(): () => void {
    return () => undefined;
  }

  /** Stores the record of the certificate authority. */
  async putAuthority({ state }: ApiTestBed): Promise<void> {
    const record = create(CertificateAuthorityRecordSchema, {
      trustDomain: this.trustDomain,
      roots: [{ generation: 1, pem: this.authority.bundlePem }],
      issuingGeneration: 1,
      trustBundleGeneration: 1n,
    });
    await state.commit(state.transaction().put('ca', CERTIFICATE_AUTHORITY_KEY, record));
  }

  /**
   * Stores a user with a bearer token.
   * @returns The text of the token.
   */
  async putUser(
    { state, clock }: ApiTestBed,
    name: string,
    grants: readonly Grant[] = [],
    lifetimeMs = 90 * DAY_MS,
  ): Promise<string> {
    const { id, secret, text } = createToken(
      'user',
      (count) => this.random.bytes(count),
      this.getTrustBundle().rootSha256s,
    );
    const nowMs = clock.wallTime();
    const user = create(UserRecordSchema, {
      user: {
        name,
        grants: grants.map(({ role, namespace }) =>
          create(RoleGrantSchema, { role: ROLES[role], namespace }),
        ),
      },
    });
    const credential = create(CredentialRecordSchema, {
      credential: {
        id,
        user: name,
        kind: CredentialKind.TOKEN,
        createdAt: timestampFromMs(nowMs),
        expiresAt: timestampFromMs(nowMs + lifetimeMs),
      },
      hmac: hashToken(this.tokenSecret, 'user', id, secret),
    });
    await state.commit(
      state.transaction().put('user', name, user).put('credential', id, credential),
    );
    return text;
  }

  /** Stores a node with a certificate. */
  async putNode({ state }: ApiTestBed, id: string, lifetimeMs?: number): Promise<TestCredential> {
    const credential = await this.authority.issue('node', id, lifetimeMs);
    await state.commit(
      state.transaction().put('node', id, this.createNodeRecord(id, credential.serial, lifetimeMs)),
    );
    return credential;
  }

  private createNodeRecord(id: string, serial: string, lifetimeMs = 3_600_000) {
    const notAfter = timestampFromMs(this.nowMs + lifetimeMs);
    return create(NodeRecordSchema, {
      id,
      instanceId: `instance-of-${id}-0123456789`,
      identity: { current: { serial, notAfter, generation: 1 } },
    });
  }

  /** Stores the credential of a user with a certificate. */
  async putUserCertificate({ state, clock }: ApiTestBed, user: string): Promise<TestCredential> {
    const credential = await this.authority.issue('user', user);
    const id = `cert-${user}`;
    const record = create(CredentialRecordSchema, {
      credential: {
        id,
        user,
        kind: CredentialKind.CERTIFICATE,
        createdAt: timestampFromMs(clock.wallTime()),
      },
      current: {
        serial: credential.serial,
        notAfter: timestampFromMs(this.nowMs + 3_600_000),
        generation: 1,
      },
    });
    await state.commit(state.transaction().put('credential', id, record));
    return credential;
  }
}

/** Creates a client whose calls have a bearer token. */
export function createTokenClient<Service extends DescService>(
  bed: { readonly transport: Transport },
  service: Service,
  token: string,
): Client<Service> {
  return createHeaderClient(bed, service, { authorization: `Bearer ${token}` });
}

/**
 * Creates a client whose calls arrive on a connection with a client certificate.
 * @param server - Serves the calls. Default: the test bed.
 */
export function createCertificateClient<Service extends DescService>(
  bed: ApiTestBed,
  service: Service,
  connectionName: string,
  { chainDer }: Pick<TestCredential, 'chainDer'>,
  server: { readonly transport: Transport } = bed,
): Client<Service> {
  bed.connection(connectionName).peer = { chainDer };
  return createHeaderClient(server, service, { [CONNECTION_HEADER]: connectionName });
}

function createHeaderClient<Service extends DescService>(
  server: { readonly transport: Transport },
  service: Service,
  headers: Readonly<Record<string, string>>,
): Client<Service> {
  return createClient(service, {
    unary: (method, signal, timeout, header, message, contextValues) =>
      server.transport.unary(
        method,
        signal,
        timeout,
        { ...toRecord(header), ...headers },
        message,
        contextValues,
      ),
    stream: (method, signal, timeout, header, message, contextValues) =>
      server.transport.stream(
        method,
        signal,
        timeout,
        { ...toRecord(header), ...headers },
        message,
        contextValues,
      ),
  });
}

function toRecord(
  header: ConstructorParameters<typeof Headers>[0],
): Readonly<Record<string, string>> {
  return Object.fromEntries(new Headers(header));
}
