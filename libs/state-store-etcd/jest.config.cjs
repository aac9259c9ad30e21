module.exports = { preset: '../../jest.preset.js', displayName: 'state-store-etcd' };
