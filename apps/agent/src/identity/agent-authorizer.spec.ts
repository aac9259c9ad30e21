import { beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { create } from '@bufbuild/protobuf';
import type { DescMethod } from '@bufbuild/protobuf';
import { CloudlessError } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { NodeIdentityKeeper, NodeIdentityStore, type NodeIdentity } from '@cloudless/agent-core';
import { MemoryIdentityFiles } from '@cloudless/agent-core/testing';
import {
  AgentService,
  AuthorizeAgentCallResponseSchema,
  type AuthorizeAgentCallRequest,
} from '@cloudless/api';
import { Health, ServerReflectionV1 } from '@cloudless/api/grpc';
import {
  CERTIFICATE_MISTAKES,
  TestAuthority,
  type TestCredential,
} from '@cloudless/identity/testing';
import type { Caller, ClientConnection } from '@cloudless/rpc-node/server';
import { AgentAuthorizer } from './agent-authorizer.js';

const HOUR_MS = 3_600_000;
const { method } = AgentService;

let authority: TestAuthority;
let clock: ManualClock;
const credentials = new Map<string, TestCredential>();
beforeAll(async () => {
  authority = await TestAuthority.create({ nowMs: new ManualClock().wallTime() });
  for (const kind of ['user', 'node', 'controller', 'workload', 'service'] as const)
    credentials.set(kind, await authority.issue(kind, kind === 'workload' ? 'shop.web' : 'ada'));
});

/** An agent that is asked for its opinion. */
class Bed {
  readonly questions: AuthorizeAgentCallRequest[] = [];
  drained = 0;
  allows: () => boolean = () => true;
  readonly keeper: NodeIdentityKeeper;
  readonly authorizer: AgentAuthorizer;

  constructor(bundlePem = authority.bundlePem) {
    const store = new NodeIdentityStore(new MemoryIdentityFiles(), 'reset');
    const identity = {
      trustDomain: 'cloudless',
      trustBundle: { generation: 1n, pem: bundlePem },
    } as NodeIdentity;
    this.keeper = new NodeIdentityKeeper(store, { identity }, () => Promise.reject(new Error()));
    this.authorizer = new AgentAuthorizer({
      nodeId: 'n1',
      keeper: this.keeper,
      clock,
      ask: async (request) => {
        this.questions.push(request);
        const allowed = this.allows();
        const reason = allowed ? '' : 'user/ada needs the role operator';
        return create(AuthorizeAgentCallResponseSchema, { allowed, principal: 'user/ada', reason });
      },
    });
  }

  call(rpc: DescMethod, credential?: TestCredential, header: Record<string, string> = {}): Caller {
    const peer = credential === undefined ? undefined : { chainDer: credential.chainDer };
    const connection = { id: 'c1', peer, drain: () => (this.drained += 1) };
    return this.authorizer.authorize({
      method: rpc,
      connection: connection as unknown as ClientConnection,
      header: new Headers(header),
    });
  }

  /** Makes an ExecCommand call with the certificate of a kind. */
  async exec(kind: string): Promise<Caller> {
    const caller = this.call(method.execCommand, credentials.get(kind));
    await this.authorizer.requireAccess(caller, 'ExecCommand', 'r1');
    return caller;
  }
}

describe('AgentAuthorizer', () => {
  let bed: Bed;
  beforeEach(() => {
    clock = new ManualClock();
    bed = new Bed();
  });

  it('asks the coordinator about a user, with certificate, RPC and replica', async () => {
    const { principal } = await bed.exec('user');
    expect(principal.name).toBe('user/ada');
    expect(bed.questions).toMatchObject([{ nodeId: 'n1', rpc: 'ExecCommand', target: 'r1' }]);
    expect(bed.questions[0]?.certificateChain[0]).toEqual(credentials.get('user')?.chainDer[0]);
  });

  it('asks about each privileged call, so that each is in the audit log', async () => {
    await bed.exec('user');
    await bed.exec('user');
    expect(bed.questions.map(({ running }) => running)).toEqual([false, false]);
    for (let calls = 0; calls < 2; calls += 1) {
      const caller = bed.call(method.streamLogs, credentials.get('user'));
      await bed.authorizer.requireAccess(caller, 'StreamLogs', 'r1');
    }
    expect(bed.questions).toHaveLength(3);
  });

  it('refuses a user without the role, with the reason of the coordinator', async () => {
    bed.allows = () => false;
    await expect(bed.exec('user')).rejects.toMatchObject({
      kind: 'denied',
      message: 'user/ada needs the role operator',
    });
  });

  it('refuses a user when no coordinator can be asked', async () => {
    bed.allows = () => {
      throw new CloudlessError('unavailable', 'there is no session with a coordinator');
    };
    await expect(bed.exec('user')).rejects.toMatchObject({
      kind: 'unavailable',
      message:
        'node n1 cannot ask a coordinator whether this call is allowed: there is no session with a coordinator',
    });
  });

  it('ends an open call when the role is gone, and when the certificate expires', async () => {
    const caller = await bed.exec('user');
    caller.check();
    bed.allows = () => false;
    await clock.advance(3_000);
    caller.check();
    await clock.advance(100);
    expect(() => caller.check()).toThrow('user/ada needs the role operator');
    const other = bed.call(Health.method.watch, credentials.get('user'));
    await clock.advance(2 * HOUR_MS);
    expect(() => other.check()).toThrow(expect.objectContaining({ reason: 'CERTIFICATE_EXPIRED' }));
  });

  it('ends an open call when the root of its certificate is not trusted any more', async () => {
    const caller = await bed.exec('user');
    const next = await TestAuthority.create({ nowMs: clock.wallTime(), generation: 2 });
    Object.assign(bed.keeper.current ?? {}, {
      trustBundle: { generation: 2n, pem: next.bundlePem },
    });
    expect(() => caller.check()).toThrow('another certificate authority');
  });

  it.each(['node', 'workload', 'service'])('refuses a %s, without a question', async (kind) => {
    await expect(bed.exec(kind)).rejects.toMatchObject({ kind: 'denied' });
    expect(bed.questions).toEqual([]);
  });

  it('refuses callers without a certificate everything but health checks', () => {
    for (const rpc of AgentService.methods)
      expect(() => bed.call(rpc)).toThrow(expect.objectContaining({ kind: 'unauthenticated' }));
    expect(() => bed.call(ServerReflectionV1.method.serverReflectionInfo)).toThrow(
      expect.objectContaining({ kind: 'unauthenticated' }),
    );
    expect(bed.call(Health.method.check).principal.kind).toBe('unauthenticated');
  });

  it.each(['', 'user'])('refuses a bearer token, beside the certificate "%s"', (kind) => {
    const header = { authorization: 'Bearer clu1.x' };
    expect(() => bed.call(Health.method.check, credentials.get(kind), header)).toThrow(
      'agents accept no bearer tokens, because a machine of the cluster must not see the tokens of users; ' +
        'call with a client certificate (cloudlessctl login), or call a coordinator',
    );
  });

  it.each(CERTIFICATE_MISTAKES.map((mistake) => ({ mistake })))(
    'refuses a certificate $mistake, also for health checks, and closes the connection',
    async ({ mistake }) => {
      const credential = await authority.issueMistake(mistake, 'user', 'ada');
      expect(() => bed.call(Health.method.check, credential)).toThrow(
        expect.objectContaining({ kind: 'unauthenticated' }),
      );
      expect(bed.drained).toBe(1);
    },
  );

  it('refuses a caller that authorize has not identified', async () => {
    const stranger = { principal: { kind: 'controller' }, check: () => undefined } as never;
    await expect(bed.authorizer.requireAccess(stranger, 'Exec', 'r1')).rejects.toMatchObject({
      kind: 'denied',
    });
    await expect(bed.authorizer.requireAccess(undefined, 'Exec', '')).rejects.toMatchObject({
      kind: 'denied',
    });
  });

  it.each([
    ['user', undefined],
    ['node', 'denied'],
    ['workload', 'denied'],
    ['none', 'unauthenticated'],
  ])('decides about the metrics page for a %s: %s', async (kind, refusal) => {
    const peer = credentials.has(kind) ? { chainDer: credentials.get(kind)?.chainDer } : undefined;
    const connection = { id: 'c1', peer, drain: () => undefined } as unknown as ClientConnection;
    const read = () => bed.authorizer.authorizePage(connection, new Headers());
    if (refusal !== undefined) await expect(read()).rejects.toMatchObject({ kind: refusal });
    else {
      await read();
      expect(bed.questions).toMatchObject([{ rpc: 'ListContainerStats', target: '' }]);
    }
  });
});
