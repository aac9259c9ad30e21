import { create } from '@bufbuild/protobuf';
import { describe, expect, it } from '@jest/globals';
import {
  OrderRefusedSchema,
  ReplicaReportSchema,
  TunnelRefusedSchema,
  UsageSchema,
  type AgentMessage,
  type ReplicaReport,
} from '@cloudless/api';
import { SessionOutbox } from './session-outbox.js';

type Message = AgentMessage['message'];

const aReport = (replicaId: string, reason = ''): ReplicaReport =>
  create(ReplicaReportSchema, { replicaId, reason });

/** Creates an outbox without Hello and inventory that finds its reports in `reports`. */
function createOutbox(reports: ReadonlyMap<string, ReplicaReport> = new Map()) {
  return new SessionOutbox(
    () => [],
    (replicaId) => reports.get(replicaId),
  );
}

/** Returns all queued messages. */
async function drain(outbox: SessionOutbox): Promise<readonly Message[]> {
  outbox.sendGoodbye({ reason: 'end', replicasContinue: true });
  const messages: Message[] = [];
  for await (const { message } of outbox) messages.push(message);
  return messages.slice(0, -1);
}

describe('SessionOutbox', () => {
  it('keeps the newest 256 refused orders', async () => {
    const outbox = createOutbox();
    for (let index = 0; index < 300; index += 1)
      outbox.refuseOrder(create(OrderRefusedSchema, { replicaId: `web-${index}` }));
    const messages = await drain(outbox);
    expect(messages).toHaveLength(256);
    expect(messages[0]).toMatchObject({ case: 'refused', value: { replicaId: 'web-44' } });
    expect(messages.at(-1)).toMatchObject({ value: { replicaId: 'web-299' } });
  });

  it('keeps the newest 256 refused tunnels', async () => {
    const outbox = createOutbox();
    for (let index = 0; index < 300; index += 1)
      outbox.refuseTunnel(create(TunnelRefusedSchema, { tunnelId: `t${index}` }));
    const messages = await drain(outbox);
    expect(messages).toHaveLength(256);
    expect(messages[0]).toMatchObject({ case: 'tunnelRefused', value: { tunnelId: 't44' } });
    expect(messages.at(-1)).toMatchObject({ value: { tunnelId: 't299' } });
  });

  it('sends only the newest refusal of a replica', async () => {
    const outbox = createOutbox();
    for (const orderRevision of [1n, 2n, 3n])
      outbox.refuseOrder(create(OrderRefusedSchema, { replicaId: 'web-1', orderRevision }));
    expect(await drain(outbox)).toMatchObject([{ value: { orderRevision: 3n } }]);
  });

  it('sends one report of a replica that changed several times, with the content at the time of sending', async () => {
    const reports = new Map([['web-1', aReport('web-1', 'first')]]);
    const outbox = createOutbox(reports);
    outbox.reportChanged('web-1');
    outbox.reportChanged('web-1');
    reports.set('web-1', aReport('web-1', 'second'));
    expect(await drain(outbox)).toMatchObject([{ case: 'report', value: { reason: 'second' } }]);
  });

  it('sends no report of a replica that no longer exists', async () => {
    const outbox = createOutbox();
    outbox.reportChanged('web-1');
    expect(await drain(outbox)).toEqual([]);
  });

  it('replaces the report of a replica by the acknowledgement that it was forgotten', async () => {
    const outbox = createOutbox(new Map([['web-1', aReport('web-1')]]));
    outbox.reportChanged('web-1');
    outbox.reportForgotten(create(ReplicaReportSchema, { replicaId: 'web-1', forgotten: true }));
    expect(await drain(outbox)).toMatchObject([{ case: 'report', value: { forgotten: true } }]);
  });

  it('sends only the newest usage, after all other messages', async () => {
    const outbox = createOutbox(new Map([['web-1', aReport('web-1')]]));
    outbox.sendUsage(create(UsageSchema, { usage: { cpuMillis: 1 } }));
    outbox.sendUsage(create(UsageSchema, { usage: { cpuMillis: 2 } }));
    outbox.reportChanged('web-1');
    expect(await drain(outbox)).toMatchObject([
      { case: 'report' },
      { case: 'usage', value: { usage: { cpuMillis: 2 } } },
    ]);
  });

  it('yields a message to a waiting reader as soon as the message is queued', async () => {
    const outbox = createOutbox();
    const next = outbox[Symbol.asyncIterator]().next();
    outbox.sendUsage(create(UsageSchema));
    expect(await next).toMatchObject({ value: { message: { case: 'usage' } } });
  });

  it('drops queued messages when it is ended', async () => {
    const outbox = createOutbox();
    outbox.sendUsage(create(UsageSchema));
    outbox.end();
    const messages: Message[] = [];
    for await (const { message } of outbox) messages.push(message);
    expect(messages).toEqual([]);
  });
});
