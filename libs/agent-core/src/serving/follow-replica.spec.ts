import { CloudlessError, toContainerId, type ContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import { aStartOrder, aStopOrder, AgentTestBed } from '../testing/index.js';
import { followReplica } from './follow-replica.js';

describe('followReplica', () => {
  let testBed: AgentTestBed;
  const currentId = (): ContainerId => toContainerId(testBed.requireReport().containerId);

  /** Makes the log of a container end with an error after all its lines. */
  function failLog(failingId: ContainerId, failure: CloudlessError): void {
    const logBatches = testBed.runtime.logBatches.bind(testBed.runtime);
    testBed.runtime.logBatches = async function* (containerId, request, signal) {
      yield* logBatches(containerId, request, signal);
      if (containerId === failingId) throw failure;
    };
  }

  /** Makes the running container write a line after each read of its log. */
  function writeAfterEachRead(): void {
    const logBatches = testBed.runtime.logBatches.bind(testBed.runtime);
    testBed.runtime.logBatches = async function* (containerId, request, signal) {
      yield* logBatches(containerId, request, signal);
      testBed.machine.write(currentId(), 'stdout', 'later\n');
    };
  }

  /** Reads lines in the background until the stream ends or fails. */
  function follow(): { readonly lines: string[]; readonly end: Promise<void> } {
    const lines: string[] = [];
    const read = async (): Promise<void> => {
      const sources = { runtime: testBed.runtime, replicas: testBed.agent.replicas };
      const { signal } = new AbortController();
      for await (const { batch } of followReplica(
        'web-1',
        { follow: true },
        new Map(),
        sources,
        signal,
      ))
        for (const { text } of batch?.lines ?? []) lines.push(new TextDecoder().decode(text));
    };
    return { lines, end: read() };
  }

  /** Lets the replica have an exited container that wrote `old`, and a running container. */
  beforeEach(async () => {
    testBed = new AgentTestBed();
    await testBed.start();
    testBed.coordinator.sendOrder(aStartOrder());
    await settle();
    testBed.machine.write(currentId(), 'stdout', 'old\n');
    testBed.machine.exit(currentId(), 1);
    await testBed.clock.advance(1_000);
  });

  it('continues with the next container when a container is removed while its log is read', async () => {
    const [removedId] = testBed.requireReport().earlierContainerIds;
    failLog(toContainerId(removedId ?? ''), new CloudlessError('notFound', 'no such container'));
    const { lines, end } = follow();
    await settle();
    testBed.machine.write(currentId(), 'stdout', 'new\n');
    await settle();
    expect(lines).toEqual(['old', 'new']);
    testBed.coordinator.sendOrder(aStopOrder({ preStopMs: 0 }));
    await end;
  });

  it.each([0, 1, 3])(
    'yields %i lines for a tail of as many, also while the container writes',
    async (tailLines) => {
      for (const line of ['1', '2', '3']) testBed.machine.write(currentId(), 'stdout', `${line}\n`);
      writeAfterEachRead();
      const { signal } = new AbortController();
      const sources = { runtime: testBed.runtime, replicas: testBed.agent.replicas };
      const request = { follow: false, tailLines };
      let count = 0;
      for await (const { batch } of followReplica('web-1', request, new Map(), sources, signal))
        count += batch?.lines.length ?? 0;
      expect(count).toBe(tailLines);
    },
  );

  it('rejects when a log cannot be read for another reason', async () => {
    const [failingId] = testBed.requireReport().earlierContainerIds;
    failLog(toContainerId(failingId ?? ''), new CloudlessError('internal', 'read failed'));
    await expect(follow().end).rejects.toMatchObject({ kind: 'internal' });
  });
});
