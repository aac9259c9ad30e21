import { containsNetwork, type IpNetwork } from '@cloudless/api';

/**
 * Returns the networks that no other of these networks contains, without repetitions: the same
 * addresses, each in one network. Two networks either are disjoint, or one contains the other.
 */
export function selectOutermost(networks: readonly IpNetwork[]): readonly IpNetwork[] {
  const outermost: IpNetwork[] = [];
  // A network stands before the networks that it contains, with none between that it lacks.
  for (const network of [...networks].sort(compareNetworks)) {
    const last = outermost.at(-1);
    if (last === undefined || !containsNetwork(last, network)) outermost.push(network);
  }
  return outermost;
}

function compareNetworks(left: IpNetwork, right: IpNetwork): number {
  if (left.family !== right.family) return left.family - right.family;
  if (left.bits !== right.bits) return left.bits < right.bits ? -1 : 1;
  return left.prefixLength - right.prefixLength;
}
