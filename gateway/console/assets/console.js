// The code of the link is in the fragment. It goes into the form, and out of the address and the history. The link may also be opened
// in a tab that shows the form already.
'use strict';
{
  const form = document.getElementById('login');
  const signIn = () => {
    const code = location.hash.slice(1);
    if (!form || !code || code === 'content') return;
    history.replaceState(null, '', location.pathname);
    form.elements.code.value = code;
    form.requestSubmit();
  };
  addEventListener('hashchange', signIn);
  signIn();
}
