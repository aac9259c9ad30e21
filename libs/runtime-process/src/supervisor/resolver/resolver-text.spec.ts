import { toResolverText } from './resolver-text.js';

const settings = {
  dnsServers: ['10.96.0.10'],
  dnsSearches: ['shop.svc.cloudless.internal', 'svc.cloudless.internal', 'cloudless.internal'],
  dnsOptions: ['ndots:5'],
};
const OWN = settings.dnsSearches.join(' ');

describe('the resolv.conf of a process', () => {
  it('names the DNS server, the search domains and the options of its settings', () => {
    const text = toResolverText(settings, { text: 'nameserver 9.9.9.9\n', hostname: 'node-1' });
    expect(text.split('\n').filter((line) => !line.startsWith('#'))).toEqual([
      'nameserver 10.96.0.10',
      `search ${OWN}`,
      'options ndots:5',
      '',
    ]);
  });

  it.each([
    {
      name: 'a search line',
      text: 'search corp.example lab.example',
      more: ' corp.example lab.example',
    },
    { name: 'a domain line', text: 'domain corp.example', more: ' corp.example' },
    {
      name: 'the last of several lines',
      text: 'search a.example\ndomain b.example',
      more: ' b.example',
    },
    {
      name: 'no line, but a host name with a domain',
      hostname: 'n.corp.example',
      text: '',
      more: ' corp.example',
    },
    {
      name: 'a line and a host name with a domain',
      hostname: 'n.a.example',
      text: 'search b.example',
      more: ' b.example',
    },
    { name: 'a comment and the root domain', text: '# search a.example\nsearch .', more: '' },
    { name: 'a domain that the settings have', text: 'search cloudless.internal', more: '' },
  ])('adds the search domains of a machine with $name', ({ text, more, hostname = 'node-1' }) => {
    const lines = toResolverText(settings, { text, hostname }).split('\n');
    expect(lines.filter((line) => line.startsWith('search'))).toEqual([`search ${OWN}${more}`]);
  });
});
