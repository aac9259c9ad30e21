import { existsSync } from 'node:fs';
import { errorKindOf, type Clock } from '@cloudless/base';
import { systemClock } from '@cloudless/app-kit';
import { ControlClient } from './control-client.js';
import { endDrainingProxies } from './draining-proxies.js';
import { removeVirtualRange } from './virtual-range.js';

/**
 * Ends the network proxy of a directory, if one runs, and removes the route that it has added unless
 * the proxy of another agent serves the same addresses. Ends earlier proxies that drain as well.
 */
export async function removeNetworkProxy(
  directory: string,
  clock: Clock = systemClock,
): Promise<void> {
  if (!existsSync(directory)) return;
  try {
    let onClosed: () => void = () => undefined;
    const closed = new Promise<void>((resolve) => (onClosed = resolve));
    const { client } = await ControlClient.open(directory, () => onClosed());
    await client.request({ type: 'shutdown' });
    await closed;
  } catch (reason) {
    if (errorKindOf(reason) !== 'unavailable') throw reason;
    await removeVirtualRange(directory); // the proxy does not run any more
  } finally {
    await endDrainingProxies(directory, clock);
  }
}
