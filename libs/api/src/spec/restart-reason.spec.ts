import {
  formatNotStarted,
  formatRestartReason,
  getBackoffCause,
  getNotStartedCause,
} from './restart-reason.js';

describe('getBackoffCause', () => {
  it.each([
    {
      name: 'the end of the last container',
      reason: 'exit code 1, restarting in 200 ms',
      lastEndReason: 'exit code 1',
      expected: 'exit code 1',
    },
    {
      name: 'the failed start of a replica that had no container, without the delay',
      reason: formatRestartReason('command: no executable server', '5 min'),
      lastEndReason: '',
      expected: 'command: no executable server',
    },
    {
      name: 'the whole reason of an agent that names no delay',
      reason: 'no executable server',
      lastEndReason: '',
      expected: 'no executable server',
    },
    { name: 'nothing without a reason', reason: '', lastEndReason: '', expected: '' },
  ])('returns $name', ({ reason, lastEndReason, expected }) => {
    expect(getBackoffCause({ reason, lastEndReason })).toBe(expected);
  });
});

describe('getNotStartedCause', () => {
  it.each([
    {
      name: 'the cause of a failed start',
      lastEndReason: formatNotStarted('not started: no disk'),
      expected: 'not started: no disk',
    },
    {
      name: 'the cause that an agent of an earlier version has written',
      lastEndReason: 'not started: no executable server',
      expected: 'no executable server',
    },
    { name: 'nothing after the end of a container', lastEndReason: 'exit code 1' },
    { name: 'nothing before the first end', lastEndReason: '' },
  ])('returns $name', ({ lastEndReason, expected }) => {
    expect(getNotStartedCause(lastEndReason)).toBe(expected);
  });
});
