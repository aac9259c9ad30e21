import type { Probe } from '@cloudless/api';
import { formatDuration } from '../output/human.js';

/**
 * Formats a probe in one line: `http:8080/healthz, every 10s, timeout 1s, fails after 3`. Empty
 * without a probe.
 */
export function formatProbe(probe: Probe | undefined): string {
  if (probe === undefined) return '';
  const { initialDelay, period, timeout, successThreshold, failureThreshold } = probe;
  const parts = [
    initialDelay === undefined || (initialDelay.seconds === 0n && initialDelay.nanos === 0)
      ? ''
      : `after ${formatDuration(initialDelay)}`,
    period === undefined ? '' : `every ${formatDuration(period)}`,
    timeout === undefined ? '' : `timeout ${formatDuration(timeout)}`,
    successThreshold > 1 ? `passes after ${successThreshold}` : '',
    failureThreshold > 0 ? `fails after ${failureThreshold}` : '',
  ];
  return [formatCheck(probe.check), ...parts.filter((part) => part !== '')].join(', ');
}

/** Formats the check in the form that the probe flags accept. */
function formatCheck(check: Probe['check']): string {
  switch (check.case) {
    case 'exec':
      return `exec:${check.value.command.join(' ')}`;
    case 'http':
      return `http:${check.value.port}${check.value.path}`;
    case 'tcp':
      return `tcp:${check.value.port}`;
    case 'grpc':
      return `grpc:${check.value.port}${check.value.service === '' ? '' : `/${check.value.service}`}`;
    default:
      return 'no check';
  }
}
