import { eventNames, parseServiceOptions } from './options.js';

describe('parseServiceOptions', () => {
  it('runs all events, the other clients and the change of the password by default', () => {
    expect(parseServiceOptions([])).toMatchObject({
      events: eventNames,
      runsClients: true,
      changesPasswords: true,
      nodes: 3,
      rate: 200,
      outageMs: 60_000,
      isTimed: false,
    });
  });

  it('takes events in their order, or none', () => {
    const { events } = parseServiceOptions(['--events', 'kill-node,rolling-update']);
    expect(events).toEqual(['kill-node', 'rolling-update']);
    expect(parseServiceOptions(['--strict']).isTimed).toBe(true);
    expect(
      parseServiceOptions(['--events', 'none', '--no-clients', '--no-passwords']),
    ).toMatchObject({
      events: [],
      runsClients: false,
      changesPasswords: false,
    });
  });

  it.each([
    { args: ['--events', 'flood'], message: '--events: there is no event flood; there are' },
    { args: ['--nodes', '2'], message: '--nodes 2: give a number from 3 to 8' },
    { args: ['--outage', 'long'], message: '--outage long: give a number from 1 to 3600' },
    { args: ['--colour'], message: '--colour' },
  ])('refuses $args', ({ args, message }) => {
    expect(() => parseServiceOptions(args)).toThrow(message);
  });
});
