import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  CoordinatorService,
  ErrorReason,
  Event_Category as Category,
  Event_Severity as Severity,
  ReplicaStatus_Phase as Phase,
} from '@cloudless/api';
import { CloudlessError, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { CallAccess } from '../access/call-access.js';
import type { ApiServerDeps } from '../ports.js';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { CONNECTION_HEADER } from '../testing/scripted-agent.js';
import { AuditLog } from './audit-log.js';

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
});
afterEach(() => bed.stop());

const spec = { command: ['serve'] };
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';

describe('AuditLog', () => {
  it('records caller, subject, result and trace id of a call that changes state', async () => {
    await bed.client.createWorkload(
      { namespace: 'prod', name: 'web', spec, requestId: 'r1' },
      { headers: { [CONNECTION_HEADER]: 'cli', traceparent: `00-${TRACE}-00f067aa0ba902b7-01` } },
    );
    expect(bed.events('CreateWorkload')[0]).toMatchObject({
      category: Category.AUDIT,
      severity: Severity.INFO,
      message: 'anonymous@loopback from 10.0.0.3 called CreateWorkload on prod/web: ok',
      namespace: 'prod',
      workload: 'web',
      requestId: 'r1',
      audit: {
        principal: 'anonymous@loopback',
        address: '10.0.0.3',
        rpc: 'cloudless.api.CoordinatorService/CreateWorkload',
        result: 'ok',
        traceId: TRACE,
      },
    });
  });

  it('records no call that only reads', async () => {
    await bed.client.listWorkloads({});
    await bed.client.getServerInfo({});
    await expect(bed.client.getWorkload({ name: 'web' })).rejects.toThrow('not found');
    expect(bed.auditRecords).toEqual([]);
  });

  it('records the result `unchanged` for a call that changes nothing', async () => {
    await bed.putNode('node-1');
    await bed.client.cordonNode({ nodeId: 'node-1' });
    await bed.client.cordonNode({ nodeId: 'node-1' });
    expect(bed.auditRecords).toEqual(['CordonNode ok', 'CordonNode unchanged']);
    expect(bed.events('CordonNode')[0]).toMatchObject({ nodeId: 'node-1' });
  });

  it('records a failed call with its error code and severity WARNING', async () => {
    await expect(bed.client.cordonNode({ nodeId: 'node-9' })).rejects.toThrow('not found');
    expect(bed.events('CordonNode')[0]).toMatchObject({
      severity: Severity.WARNING,
      message: 'anonymous@loopback called CordonNode on node node-9: not_found',
      audit: { result: 'not_found' },
      errorReason: ErrorReason.NODE_NOT_FOUND,
    });
  });

  it('merges failed calls after the first 10 into one record per 10 s, separately for each client', async () => {
    const fail = (name: string) =>
      bed.client
        .cordonNode({ nodeId: 'node-9' }, { headers: { [CONNECTION_HEADER]: name } })
        .catch(() => undefined);
    for (let count = 0; count < 15; count += 1) await fail('one');
    expect(bed.events('CordonNode')).toHaveLength(10);
    await fail('other');
    expect(bed.events('CordonNode')).toHaveLength(11);
    await bed.clock.advance(10_000);
    await fail('one');
    expect(bed.events('CordonNode').at(-1)).toMatchObject({
      count: 6,
      firstTime: { seconds: BigInt(bed.clock.wallTime() - 10_000) / 1_000n },
    });
  });

  it('records an exec before its tunnel is opened, with the program and the number of arguments only', async () => {
    await bed.putReplica('w-0', { containerId: 'c'.repeat(64), phase: Phase.RUNNING });
    await expect(
      bed.client.execCommand({ replicaId: 'w-0', command: ['cat', '/secret', '-n'] }),
    ).rejects.toThrow('is not connected');
    expect(bed.auditRecords).toEqual(['ExecCommand started', 'ExecCommand unavailable']);
    const [started] = bed.events('ExecCommand');
    expect(started).toMatchObject({
      replicaId: 'w-0',
      nodeId: 'node-1',
      workload: 'web-w',
      message:
        'anonymous@loopback called ExecCommand on replica w-0, running cat with 2 arguments: started',
      audit: { program: 'cat', argumentCount: 2 },
    });
    expect(JSON.stringify(started?.message)).not.toContain('secret');
  });

  it('writes "1 argument" in the message when an exec has one argument', async () => {
    await bed.putReplica('w-0', { containerId: 'c'.repeat(64), phase: Phase.RUNNING });
    await bed.client.execCommand({ replicaId: 'w-0', command: ['ls', '/'] }).catch(() => undefined);
    expect(bed.events('ExecCommand')[0]?.message).toContain('running ls with 1 argument: started');
  });

  it('records a streaming call that is rejected at its first message', async () => {
    const responses = bed.client.exec(
      (async function* () {
        yield { request: { case: 'stdin' as const, value: new Uint8Array() } };
      })(),
    );
    await expect(responses[Symbol.asyncIterator]().next()).rejects.toThrow('first message');
    expect(bed.auditRecords).toEqual(['Exec invalid_argument']);
  });

  it('records a backup as started', async () => {
    for await (const chunk of bed.admin.backup({})) void chunk;
    expect(bed.auditRecords).toEqual(['Backup started']);
  });

  it('writes one record for a call with several commits', async () => {
    await bed.putNode('node-1');
    for (let number = 0; number < 90; number += 1) await bed.putReplica(`w${number}-0`);
    await bed.client.removeNode({ nodeId: 'node-1', force: true });
    expect(bed.auditRecords).toEqual(['RemoveNode ok']);
    expect([...bed.state.view().replicasOn('node-1')]).toEqual([]);
  });
});

describe('AuditLog of a coordinator that no longer leads', () => {
  it('writes no record and no log line of a call that fails for this reason', async () => {
    const lost = new CloudlessError('LEADERSHIP_LOST', 'this coordinator no longer leads');
    const written: string[] = [];
    const state = {
      transaction: () => ({ event: () => 'transaction' }),
      commitObserved: async () => {
        written.push('record');
        throw lost;
      },
    };
    const log = { ...silentLog, warn: (message: string) => void written.push(message) };
    const audit = new AuditLog(
      {
        ...{ log, clock: new ManualClock() },
        state: state as unknown as ApiServerDeps['state'],
        getConnection: () => undefined,
      },
      { getCaller: () => ({ principal: { name: 'user/ann' } }) } as unknown as CallAccess,
    );
    const call = (reason: CloudlessError): Promise<unknown> => {
      const { updateWorkload } = CoordinatorService.method;
      const handler = (): never => {
        throw reason;
      };
      const context = { requestHeader: new Headers() } as HandlerContext;
      const request = create(updateWorkload.input, { name: 'web' });
      return audit.wrapUnary(updateWorkload, handler)(request, context);
    };
    await expect(call(lost)).rejects.toBe(lost);
    expect(written).toEqual([]);
    await expect(call(new CloudlessError('notFound', 'no web'))).rejects.toThrow('no web');
    expect(written).toEqual(['record', 'refused call not recorded']);
  });
});
