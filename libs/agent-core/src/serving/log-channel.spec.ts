import { create } from '@bufbuild/protobuf';
import { CloudlessError } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import {
  computeLogCost,
  LogChannelFrameSchema,
  LogEntrySchema,
  StreamLogsRequestSchema,
  type LogChannelFrame,
  type LogEntry,
  type StreamLogsRequest,
} from '@cloudless/api';
import { LogChannel } from './log-channel.js';

const ENTRY = create(LogEntrySchema, { sequence: 1n, line: 'x'.repeat(1_000) });
const COST = computeLogCost(ENTRY);

/** Creates a log channel, functions that send frames to it, and the list of the frames it sent. */
function aChannel(
  streamLogs: (request: StreamLogsRequest, signal: AbortSignal) => AsyncIterable<LogEntry>,
) {
  const toError = (reason: unknown) => ({ code: 5, message: (reason as Error).message });
  const channel = new LogChannel({ streamLogs, toError });
  const sent: LogChannelFrame[] = [];
  const sendFrame = (logId: number, frame: LogChannelFrame['frame']): void =>
    channel.handleFrame(create(LogChannelFrameSchema, { logId: BigInt(logId), frame }));
  return {
    channel,
    sent,
    open: (logId: number, replicaId = 'web-1'): void =>
      sendFrame(logId, { case: 'open', value: create(StreamLogsRequestSchema, { replicaId }) }),
    grant: (logId: number, bytes: number): void =>
      sendFrame(logId, { case: 'window', value: BigInt(bytes) }),
    close: (logId: number): void =>
      sendFrame(logId, { case: 'close', value: { $typeName: 'cloudless.api.TunnelEnd' } }),
    read: async (): Promise<void> => {
      for await (const frames of channel.readFrames()) sent.push(...frames);
    },
    kindsOf: (logId: number): readonly unknown[] =>
      sent.filter((each) => each.logId === BigInt(logId)).map(({ frame }) => frame.case),
  };
}

async function* endless(
  _request: StreamLogsRequest,
  signal: AbortSignal,
): AsyncGenerator<LogEntry> {
  while (!signal.aborted) yield ENTRY;
}

describe('LogChannel', () => {
  it('sends of each log only as many bytes as the window of this log allows', async () => {
    const { channel, open, grant, kindsOf, read } = aChannel(endless);
    const reading = read();
    open(1);
    open(2);
    grant(1, COST);
    grant(2, 3 * COST);
    await settle();
    expect([kindsOf(1).length, kindsOf(2).length]).toEqual([1, 3]);
    grant(1, 2 * COST);
    await settle();
    expect([kindsOf(1).length, kindsOf(2).length]).toEqual([3, 3]);
    channel.end();
    await reading;
  });

  it('ends a log, and no other log, when the log ends, fails or is closed', async () => {
    const stopped: string[] = [];
    const { channel, open, grant, close, kindsOf, read, sent } = aChannel(async function* (
      { replicaId },
      signal,
    ) {
      try {
        if (replicaId === 'ends') yield ENTRY;
        else if (replicaId === 'fails')
          throw new CloudlessError('notFound', 'replica "fails" is not on node node-1');
        else yield* endless(create(StreamLogsRequestSchema), signal);
      } finally {
        if (signal.aborted) stopped.push(replicaId);
      }
    });
    const reading = read();
    open(1, 'ends');
    open(2, 'fails');
    open(3, 'goes-on');
    for (const logId of [1, 2]) grant(logId, 10 * COST);
    grant(3, COST);
    await settle();
    close(3);
    await settle();
    grant(3, 10 * COST);
    await settle();
    expect([kindsOf(1), kindsOf(2), kindsOf(3)]).toEqual([['entry', 'end'], ['error'], ['entry']]);
    expect(sent.find(({ logId }) => logId === 2n)?.frame.value).toMatchObject({
      code: 5,
      message: expect.stringContaining('fails') as unknown,
    });
    expect(stopped).toEqual(['goes-on']);
    channel.end();
    await reading;
  });

  it('reads at most 1 MiB ahead of the connection and ends the logs with the channel', async () => {
    let reading = 0;
    let read = 0;
    const { channel, open, grant } = aChannel(async function* (request, signal) {
      reading += 1;
      try {
        for await (const entry of endless(request, signal)) {
          read += 1;
          yield entry;
        }
      } finally {
        reading -= 1;
      }
    });
    for (let logId = 1; logId <= 8; logId += 1) {
      open(logId);
      grant(logId, 1024 * 1024);
    }
    await settle();
    expect(read * COST).toBeLessThan(2 * 1024 * 1024);
    expect(reading).toBe(8);
    channel.end();
    await settle();
    expect(reading).toBe(0);
  });

  it('rejects a log id in use and more than 640 logs', () => {
    const { channel, open } = aChannel(endless);
    open(1);
    expect(() => open(1)).toThrow('log_id: 1 is open already');
    for (let logId = 2; logId <= 640; logId += 1) open(logId);
    expect(() => open(641)).toThrow('the channel already has 640 open logs');
    channel.end();
  });
});
