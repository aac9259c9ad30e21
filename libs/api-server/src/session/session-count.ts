import { noMeter, type Meter } from '@cloudless/base';
import type { AgentSession } from './agent-session.js';

/**
 * Exposes the number of sessions as a metric.
 * @returns A function that unregisters the metric.
 */
export function exposeSessionCount(
  meter: Meter | undefined,
  sessions: ReadonlyMap<string, AgentSession>,
): () => void {
  const sessionCount = (meter ?? noMeter).gauge({
    name: 'cloudless_sessions',
    help: 'Agents that are connected, by whether their inventory has been taken in.',
    labels: ['admitted'],
  });
  return (meter ?? noMeter).onExpose(() => {
    const admitted = [...sessions.values()].filter((session) => session.admitted).length;
    sessionCount.set(admitted, { admitted: 'true' });
    sessionCount.set(sessions.size - admitted, { admitted: 'false' });
  });
}
