import { DURATION_BUCKETS, type Clock, type Meter } from '@cloudless/base';
import {
  HEALTHY,
  listAvailable,
  type ContainerEvent,
  type ContainerRuntime,
  type LogLine,
  type StartProgress,
} from '@cloudless/runtime';

/** Wraps a runtime so that starts, stops, exits, pulls, execs and log reads are measured. */
export function instrumentRuntime(
  runtime: ContainerRuntime,
  meter: Meter,
  clock: Clock,
): ContainerRuntime {
  const starts = meter.counter({
    name: 'cloudless_agent_container_starts_total',
    help: 'Start calls to the container runtime, by result: ok or failed.',
    labels: ['result'],
  });
  const startDuration = meter.histogram({
    name: 'cloudless_agent_container_start_duration_seconds',
    help: 'Time from the start call to the container runtime until the main process runs.',
    buckets: DURATION_BUCKETS,
  });
  const stops = meter.counter({
    name: 'cloudless_agent_container_stops_total',
    help: 'Stop calls to the container runtime, by result: ok or failed.',
    labels: ['result'],
  });
  const exits = meter.counter({
    name: 'cloudless_agent_container_exits_total',
    help: 'Container exits reported by the runtime.',
  });
  const lag = meter.histogram({
    name: 'cloudless_agent_runtime_event_lag_seconds',
    help: 'Time from the start or exit of a container until the agent receives the event.',
    buckets: DURATION_BUCKETS,
  });
  const execs = meter.counter({
    name: 'cloudless_agent_execs_total',
    help: 'Commands run in containers, for users and exec probes.',
  });
  const pulls = meter.counter({
    name: 'cloudless_agent_image_pulls_total',
    help: 'Image pulls of replicas, by result: ok or failed.',
    labels: ['result'],
  });
  const pullDuration = meter.histogram({
    name: 'cloudless_agent_image_pull_duration_seconds',
    help: 'Duration of successful image pulls.',
    buckets: DURATION_BUCKETS,
  });
  const lines = meter.counter({
    name: 'cloudless_agent_log_lines_read_total',
    help: 'Log lines read for users.',
  });
  const bytes = meter.counter({
    name: 'cloudless_agent_log_read_bytes_total',
    help: 'Log bytes read for users.',
  });

  const recordEvent = ({ kind, status }: ContainerEvent): void => {
    if (kind === 'exited') exits.add();
    const atMs = kind === 'exited' ? status.finishedAtMs : status.startedAtMs;
    if (atMs !== undefined) lag.observe(Math.max(0, clock.wallTime() - atMs) / 1_000);
  };
  const recordLines = (batch: readonly LogLine[]): void => {
    lines.add(batch.length);
    bytes.add(batch.reduce((sum, { text }) => sum + text.length, 0));
  };
  const recordPull = (step: StartProgress): void => {
    if (step.kind === 'pulling') return;
    pulls.add(1, { result: step.kind === 'pulled' ? 'ok' : 'failed' });
    if (step.kind === 'pulled') pullDuration.observe(step.tookMs / 1_000);
  };
  const countResult = async <Result>(
    counter: typeof starts,
    work: Promise<Result>,
  ): Promise<Result> => {
    try {
      const result = await work;
      counter.add(1, { result: 'ok' });
      return result;
    } catch (reason) {
      counter.add(1, { result: 'failed' });
      throw reason;
    }
  };
  return {
    name: runtime.name,
    version: () => runtime.version(),
    capabilities: () => runtime.capabilities(),
    prepare: (request, progress, signal) => {
      const recordStep = (step: StartProgress): void => {
        recordPull(step);
        progress(step);
      };
      return runtime.prepare(request, recordStep, signal);
    },
    start: async (request) => {
      const startedAt = clock.now();
      const status = await countResult(starts, runtime.start(request));
      startDuration.observe((clock.now() - startedAt) / 1_000);
      return status;
    },
    stop: (containerId, graceMs) => countResult(stops, runtime.stop(containerId, graceMs)),
    signal: (containerId, signal) => runtime.signal(containerId, signal),
    limitEgress: (containerId, rules) => runtime.limitEgress(containerId, rules),
    renew: (leases) => runtime.renew(leases),
    remove: (containerId) => runtime.remove(containerId),
    list: () => runtime.list(),
    listAvailable: () => listAvailable(runtime),
    events: (signal) => tap(runtime.events(signal), recordEvent),
    logs: (containerId, request, signal) =>
      tap(runtime.logs(containerId, request, signal), (line) => recordLines([line])),
    logBatches: (containerId, request, signal) =>
      tap(runtime.logBatches(containerId, request, signal), (batch) => recordLines(batch.lines)),
    exec: (containerId, request, signal) => {
      execs.add();
      return runtime.exec(containerId, request, signal);
    },
    health: () => runtime.health?.() ?? HEALTHY,
    close: () => runtime.close(),
  };
}

/**
 * Returns `items` and calls `observe` with each item before the reader gets the item. Requests an
 * item only when the reader requests one.
 */
function tap<Item>(items: AsyncIterable<Item>, observe: (item: Item) => void): AsyncIterable<Item> {
  return {
    [Symbol.asyncIterator]: () => {
      const iterator = items[Symbol.asyncIterator]();
      return {
        next: async () => {
          const result = await iterator.next();
          if (result.done !== true) observe(result.value);
          return result;
        },
        return: async (value?: unknown) =>
          (await iterator.return?.(value)) ?? { done: true, value: undefined },
      };
    },
  };
}
