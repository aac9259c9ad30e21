import {
  errorFields,
  noSampledTracer,
  type Clock,
  type Log,
  type Random,
  type SampledSpan,
  type SampledTracer,
  type SpanKind,
} from '@cloudless/base';
import { VERSION } from '@cloudless/app-kit';
import type { Tracing, TracingOptions } from '@cloudless/observability';
import type { ProxySettings } from './control-messages.js';

/** Loads the code that sends traces, and starts it. */
export type StartTracing = (options: TracingOptions) => Promise<Tracing>;

/**
 * Traces the connections and requests of a network proxy. Traces nothing until the code that sends
 * traces is loaded: the proxy serves without waiting for this code.
 */
export class ProxyTracer implements SampledTracer {
  private tracer: SampledTracer = noSampledTracer;
  private started: Promise<Tracing | undefined> = Promise.resolve(undefined);

  constructor(
    private readonly deps: {
      readonly startTracing: StartTracing;
      readonly clock: Clock;
      readonly random: Random;
      readonly log: Log;
    },
  ) {}

  begin(name: string, kind: SpanKind, parent?: string): SampledSpan | undefined {
    return this.tracer.begin(name, kind, parent);
  }

  /** Begins to load the code, if the settings name a receiver. A failure is logged. */
  start({ nodeId, traces }: Pick<ProxySettings, 'nodeId' | 'traces'>): void {
    if (traces === undefined) return;
    const { startTracing, clock, random, log } = this.deps;
    this.started = startTracing({
      ...{ endpoint: traces.endpoint, service: 'cloudless-network-proxy', version: VERSION },
      ...{ instance: nodeId, clock, log: log.child({ component: 'traces' }) },
    }).then(
      (tracing) => {
        this.tracer = tracing.createSampledTracer(traces.share, random);
        return tracing;
      },
      (reason: unknown) => void log.warn('traces not started', errorFields(reason)),
    );
  }

  /** Sends the remaining spans, see {@link Tracing.close}. */
  async close(): Promise<void> {
    const tracing = await this.started;
    this.tracer = noSampledTracer;
    await tracing?.close();
  }
}
