// Removes firewall rules of pods that were not removed through containerd. For all other pods the
// network plugins remove the rules.
import { attempt, run } from './run.mjs';

/** Runs iptables on table `nat`. */
const runNat = (...args) => run('iptables', ['--wait', '-t', 'nat', ...args]);

/**
 * Removes the rules of a network. Also removes the chains that the port mapping plugin shares among
 * networks, when no network uses these any more.
 * @param network - Name of the network.
 */
export function removeRules(network) {
  // without iptables, or without kernel support, there are no rules
  if (!attempt('iptables', ['--wait', '-t', 'nat', '-S']).ok) return;
  removeWhere((rule) => rule.includes(`name: \\"${network}\\" id:`));
  const shared = ['CNI-HOSTPORT-DNAT', 'CNI-HOSTPORT-MASQ', 'CNI-HOSTPORT-SETMARK'];
  const isUsed = listRules().some((rule) => rule.startsWith('-A CNI-HOSTPORT-DNAT '));
  if (isUsed) return;
  removeWhere((rule) => shared.some((chain) => getTarget(rule) === chain));
  for (const chain of shared) dropChain(chain);
}

const listRules = () => runNat('-S').trim().split('\n');
/** Returns the chain to which a rule leads. */
const getTarget = (rule) => / -j (\S+)/.exec(rule)?.[1];

/**
 * Deletes the rules that match, and then the chains of single pods to which they lead. Deletes from
 * the last rule to the first, so that the positions of the other rules stay valid.
 */
function removeWhere(matches) {
  const positions = new Map();
  const matching = [];
  for (const rule of listRules().filter((line) => line.startsWith('-A '))) {
    const chain = rule.split(' ')[1];
    const position = (positions.get(chain) ?? 0) + 1;
    positions.set(chain, position);
    if (matches(rule)) matching.push({ chain, position, target: getTarget(rule) });
  }
  for (const { chain, position } of matching.toReversed()) runNat('-D', chain, String(position));
  // only chains of single pods; removeRules removes shared chains
  for (const { target } of matching)
    if (/^CNI-(DN-)?[0-9a-f]{10,}$/.test(target ?? '')) dropChain(target);
}

/** Deletes a chain with its rules, if the chain exists. */
function dropChain(chain) {
  if (!attempt('iptables', ['--wait', '-t', 'nat', '-F', chain]).ok) return; // the chain does not exist
  runNat('-X', chain);
}
