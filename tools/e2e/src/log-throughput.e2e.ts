import {
  decodeLines,
  type CoordinatorClient,
  type LogEntry,
  type SkippedLines,
} from '@cloudless/api';
import { QUICK, RealCluster } from './support/cluster.js';

/** More lines than a node keeps of one replica, so that a slow reader misses lines. */
const LINE_COUNT = 200_000;
/**
 * Program that writes a first line and, after a request, numbered lines of 100 bytes at full speed.
 */
const FLOOD = `const { writeSync } = require('node:fs');
  const rest = ' ' + 'x'.repeat(90) + '\\n';
  const flood = () => {
    for (let number = 2; number <= ${LINE_COUNT};) {
      let lines = '';
      for (const end = Math.min(${LINE_COUNT}, number + 499); number <= end; number += 1)
        lines += String(number).padStart(8, '0') + rest;
      for (let at = 0; at < lines.length;) at += writeSync(1, lines.slice(at));
    }
  };
  writeSync(1, '00000001\\n');
  require('node:http').createServer((_request, response) => { response.end(); flood(); })
    .listen(process.env.PORT, '127.0.0.1');`;
/** More followers than a node has tunnels (32). */
const FOLLOWER_COUNT = 40;

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start(['zone-a']);
});
afterAll(() => cluster.stop());

/** Batch size of a follower (0: one line a message), and the line up to which it reads. */
interface Reading {
  readonly maxBatchBytes: number;
  readonly lastLine: number;
}

/**
 * Follows the log of a container and checks each line number.
 * @param onOpened - Runs when the first line has arrived.
 * @returns Counts of received and skipped lines, and a text for each wrong line.
 */
async function followAndCheck(
  client: CoordinatorClient,
  containerId: string,
  reading: Reading,
  onOpened: () => void,
) {
  const { maxBatchBytes, lastLine } = reading;
  const stopping = new AbortController();
  const result = { lines: 0, skipped: 0, faults: [] as string[] };
  let next = 1n;
  const onLine = ({ sequence, line }: LogEntry): void => {
    if (sequence !== next) result.faults.push(`line ${sequence} came where ${next} was due`);
    if (Number(line.slice(0, 8)) !== Number(sequence))
      result.faults.push(`line ${sequence} says ${line}`);
    next = sequence + 1n;
    result.lines += 1;
  };
  const onSkipped = ({ firstSequence, lastSequence }: SkippedLines): void => {
    if (firstSequence !== next)
      result.faults.push(`line ${firstSequence} is missing where ${next} was due`);
    next = lastSequence + 1n;
    result.skipped += Number(lastSequence - firstSequence + 1n);
  };
  try {
    const request = { containerId, follow: true, maxBatchBytes };
    for await (const entry of client.streamLogs(request, { signal: stopping.signal })) {
      if (next === 1n) onOpened();
      if (entry.skipped !== undefined) onSkipped(entry.skipped);
      for (const line of decodeLines(entry)) if (line.sequence > 0n) onLine(line);
      if (next > BigInt(lastLine)) break;
    }
  } finally {
    stopping.abort();
  }
  return result;
}

describe('log of a replica that writes at full speed', () => {
  it('repeats no line to a follower, and reports each missing line as skipped', async () => {
    const { client } = cluster;
    await client.createWorkload({
      name: 'flood',
      spec: {
        ...QUICK,
        command: ['node', '-e', FLOOD],
        ports: [{ name: 'http', containerPort: 80 }],
      },
    });
    const { status } = await cluster.waitUntilSettled('flood');
    const [replica] = status!.replicas;
    const [endpoint] = replica!.endpoints;
    let pendingFollowers = 2;
    const onOpened = (): void => {
      pendingFollowers -= 1;
      // the flood starts when both followers have received the first line
      if (pendingFollowers === 0) void fetch(`http://${endpoint!.ip}:${endpoint!.port}/`);
    };
    const readings: readonly Reading[] = [
      { maxBatchBytes: 64 * 1024, lastLine: LINE_COUNT },
      { maxBatchBytes: 0, lastLine: LINE_COUNT / 10 }, // one line a message
    ];
    const results = await Promise.all(
      readings.map((reading) => followAndCheck(client, replica!.containerId, reading, onOpened)),
    );
    for (const [index, { lines, skipped, faults }] of results.entries()) {
      expect(faults.slice(0, 3)).toEqual([]);
      expect(lines + skipped).toBeGreaterThanOrEqual(readings[index]!.lastLine);
    }
    expect(results[0]!.lines + results[0]!.skipped).toBe(LINE_COUNT);
  });
});

describe('40 log followers of one client', () => {
  it('leave capacity for commands of the same client and of other clients', async () => {
    const { client } = cluster;
    await client.createWorkload({
      name: 'quiet',
      spec: { ...QUICK, command: ['/bin/sh', '-c', 'echo up; exec sleep 1000'] },
    });
    const { status } = await cluster.waitUntilSettled('quiet');
    const { containerId } = status!.replicas[0]!;
    const stopping = new AbortController();
    const followers = Array.from({ length: FOLLOWER_COUNT }, () =>
      client
        .streamLogs({ containerId, follow: true }, { signal: stopping.signal })
        [Symbol.asyncIterator](),
    );
    try {
      const first = await Promise.all(followers.map((follower) => follower.next()));
      expect(first.map(({ value }) => (value as LogEntry).line)).toEqual(followers.map(() => 'up'));
      const request = { containerId, command: ['echo', 'done'] };
      expect((await client.execCommand(request)).stdout).toBe('done\n');
      expect((await cluster.client.execCommand(request)).stdout).toBe('done\n');
    } finally {
      stopping.abort();
    }
  });
});
